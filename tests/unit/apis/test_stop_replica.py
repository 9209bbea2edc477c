"""StopReplica: versions, hostile requests, and deleted replicas."""

from __future__ import annotations

from typing import Any

import pytest

from plog.errors import ErrorCode
from plog.wire.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
)
from tests.helpers.sim.sim_broker import LOG_DIR, connection
from tests.helpers.sim.sim_cluster import SimCluster


def request(
    *partitions: tuple[int, int], deletes: bool = True, **fields: Any
) -> StopReplicaRequest:
    """Return a request for partitions of topic t, given as (number, leader epoch)."""
    states = [
        StopReplicaPartitionState(
            partition_index=number, leader_epoch=epoch, delete_partition=deletes
        )
        for number, epoch in partitions
    ]
    topic = StopReplicaTopicState(topic_name="t", partition_states=states)
    defaults = {"controller_epoch": 1, "broker_epoch": 11, "topic_states": [topic]}
    return StopReplicaRequest(**(defaults | fields))


class Site:
    """Broker 1, which leads partitions 0 and 1 of topic t in leader epoch 0."""

    def __init__(self) -> None:
        self.cluster = SimCluster(1)
        self.cluster.create("t", [1], [1])
        self.broker = self.cluster.brokers[1]

    def ask(self, message: StopReplicaRequest, version: int = 4) -> StopReplicaResponse:
        response: StopReplicaResponse = self.broker.ask(message, version)
        return response

    @property
    def directories(self) -> list[str]:
        names = self.broker.files.listdir(LOG_DIR)
        return sorted(name for name in names if name.startswith("t-"))


def errors(response: StopReplicaResponse) -> list[tuple[str, int, int]]:
    assert response.error_code == 0
    return [
        (one.topic_name, one.partition_index, one.error_code) for one in response.partition_errors
    ]


@pytest.fixture
def site() -> Site:
    return Site()


@pytest.mark.parametrize("version", [3, 4])
def test_every_version_deletes_replicas(site: Site, version: int) -> None:
    response = site.ask(request((0, 0)), version)
    assert errors(response) == [("t", 0, 0)]
    deleted, kept = site.directories
    assert (deleted.endswith("-delete"), kept) == (True, "t-1")
    assert sorted(site.broker.broker.replica_manager.topics.partitions) == [("t", 1)]


@pytest.mark.parametrize("version", [3, 4])
def test_every_version_stops_replicas_without_deleting_them(site: Site, version: int) -> None:
    response = site.ask(request((0, 0), (1, 0), deletes=False), version)
    assert errors(response) == [("t", 0, 0), ("t", 1, 0)]
    assert site.directories == ["t-0", "t-1"]


def test_result_of_each_partition_is_in_the_response(site: Site) -> None:
    site.cluster.elect(1, number=1)
    response = site.ask(request((0, -2), (1, 0), (2**31 - 1, 0), (-5, 7)))
    assert errors(response) == [
        ("t", 0, 0),
        ("t", 1, ErrorCode.FENCED_LEADER_EPOCH),
        ("t", 2**31 - 1, 0),
        ("t", -5, 0),
    ]
    assert site.directories[-1] == "t-1"


def test_repeated_request_has_the_same_result(site: Site) -> None:
    message = request((0, -2), (0, -2))
    assert errors(site.ask(message)) == errors(site.ask(message)) == [("t", 0, 0)] * 2


def test_deleted_replica_can_be_created_again(site: Site) -> None:
    site.cluster.produce(b"old")
    site.cluster.settle()
    site.ask(request((0, -2)))
    site.cluster.create("t", [1], [1])
    assert site.cluster.partition(1).log.log_end_offset == 0
    site.cluster.advance(120_000)
    assert site.directories == ["t-0", "t-1"]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"controller_epoch": 0}, ErrorCode.STALE_CONTROLLER_EPOCH),
        ({"broker_epoch": 10}, ErrorCode.STALE_BROKER_EPOCH),
    ],
)
def test_stale_epoch_is_rejected(site: Site, fields: dict[str, int], code: ErrorCode) -> None:
    assert site.ask(request((0, -2), **fields)).error_code == code
    assert site.directories == ["t-0", "t-1"]


def test_other_listener_is_rejected(site: Site) -> None:
    response = site.broker.ask(request((0, -2)), 4, connection=connection("OUTSIDE"))
    assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert site.directories == ["t-0", "t-1"]
