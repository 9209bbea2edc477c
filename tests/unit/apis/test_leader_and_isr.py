"""LeaderAndIsr: versions, hostile requests, and the response after everything has been applied."""

from __future__ import annotations

from typing import Any

import pytest

from plog.errors import ErrorCode
from plog.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicState,
)
from plogd.apis.leader_and_isr import FULL
from plogd.fair_queue import SLICE
from plogd.peers import PeerUnavailable
from plogd.ports import Later, failed
from tests.helpers.sim.sim_broker import LOG_DIR, SimBroker, connection
from tests.helpers.sim.sim_cluster import SimCluster, cluster_rows, join_cluster
from tests.helpers.turn_budget import metered_broker

TOPIC_ID = b"id of t".ljust(16, b"-")


def partition(number: int = 0, **fields: Any) -> LeaderAndIsrPartitionState:
    state: dict[str, Any] = {"leader": 1, "leader_epoch": 3, "isr": [1], "replicas": [1, 2]}
    return LeaderAndIsrPartitionState(partition_index=number, **(state | fields))


def request(
    *partitions: LeaderAndIsrPartitionState,
    name: str = "t",
    topic_id: bytes = TOPIC_ID,
    **fields: Any,
) -> LeaderAndIsrRequest:
    topic = LeaderAndIsrTopicState(
        topic_name=name, topic_id=topic_id, partition_states=list(partitions)
    )
    epochs = {"controller_id": 9, "controller_epoch": 1, "broker_epoch": 11}
    return LeaderAndIsrRequest(topic_states=[topic], **(epochs | fields))


def errors(response: LeaderAndIsrResponse) -> list[tuple[int, int]]:
    """Return the partitions of a response with their error codes."""
    return [
        (one.partition_index, one.error_code)
        for topic in response.topics
        for one in topic.partition_errors
    ]


class NoPeers:
    """Peers that cannot be reached."""

    def ask(self, broker_id: int, request: Any, lane: str, **_: Any) -> Later[Any]:
        return failed(PeerUnavailable("no other broker"))

    def close(self) -> None: ...


class Site:
    """Broker 1 of a cluster, in broker epoch 11."""

    def __init__(self) -> None:
        self.cluster = SimCluster(1)
        self.cluster.advance(50)
        self.cluster.topic_ids["t"] = TOPIC_ID
        self.broker: SimBroker = self.cluster.brokers[1]

    def ask(self, message: LeaderAndIsrRequest, version: int = 7) -> LeaderAndIsrResponse:
        response: LeaderAndIsrResponse = self.broker.ask(message, version)
        return response

    @property
    def hosted(self) -> list[tuple[str, int]]:
        return sorted(self.broker.broker.replica_manager.topics.partitions)


@pytest.fixture
def site() -> Site:
    return Site()


@pytest.mark.parametrize("version", [5, 6, 7])
def test_every_version_changes_the_role(site: Site, version: int) -> None:
    response = site.ask(request(partition()), version)
    assert response.error_code == 0
    assert response.topics[0].topic_id == TOPIC_ID
    assert errors(response) == [(0, 0)]
    replica = site.cluster.partition(1)
    assert (replica.leader, replica.leader_epoch, replica.replicas) == (1, 3, (1, 2))
    assert replica.log.topic_id == TOPIC_ID


def test_result_of_each_partition_is_in_the_order_of_the_request(site: Site) -> None:
    site.ask(request(partition(0), partition(1, leader_epoch=9)))
    response = site.ask(
        request(
            partition(2),
            partition(1),
            partition(-1),
            partition(0, leader_epoch=4),
            partition(7, replicas=[2]),
            partition(0, leader_epoch=1),
        )
    )
    assert errors(response) == [
        (2, 0),
        (1, ErrorCode.STALE_CONTROLLER_EPOCH),
        (-1, ErrorCode.INVALID_TOPIC_EXCEPTION),
        (0, 0),
        (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (0, ErrorCode.STALE_CONTROLLER_EPOCH),
    ]
    assert site.hosted == [("t", 0), ("t", 1), ("t", 2)]


@pytest.mark.parametrize("name", ["", ".", "..", "../t", "a/b", "t\0", "t" * 300, "t é"])
def test_invalid_topic_name_creates_no_directory(site: Site, name: str) -> None:
    before = site.broker.files.listdir(LOG_DIR)
    response = site.ask(request(partition(), name=name))
    assert errors(response) == [(0, ErrorCode.INVALID_TOPIC_EXCEPTION)]
    assert (site.hosted, site.broker.files.listdir(LOG_DIR)) == ([], before)


def test_other_listener_is_rejected(site: Site) -> None:
    outside = connection("OUTSIDE")
    response = site.broker.ask(request(partition()), 7, connection=outside)
    assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert site.hosted == []


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"controller_epoch": 0}, ErrorCode.STALE_CONTROLLER_EPOCH),
        ({"broker_epoch": 10}, ErrorCode.STALE_BROKER_EPOCH),
        ({"broker_epoch": 12}, ErrorCode.STALE_BROKER_EPOCH),
    ],
)
def test_stale_epoch_is_rejected(site: Site, fields: dict[str, int], code: ErrorCode) -> None:
    assert site.ask(request(partition(), **fields)).error_code == code
    assert site.hosted == []


def test_broker_that_is_not_registered_rejects_requests(site: Site) -> None:
    site.broker.broker.cluster_replicas = None
    assert site.ask(request(partition())).error_code == ErrorCode.STALE_BROKER_EPOCH


def test_repeated_request_has_the_same_result(site: Site) -> None:
    message = request(partition(0), partition(1, leader=2))
    first = site.ask(message)
    assert errors(first) == errors(site.ask(message)) == [(0, 0), (1, 0)]


def test_response_waits_for_the_logs(site: Site) -> None:
    asked = site.broker.begin(request(partition()), 7)
    second = site.broker.begin(request(partition(1)), 7)
    site.broker.ports.timers.run_due()
    assert not asked.is_done
    site.broker.settle()
    assert (asked.is_done, second.is_done) == (True, True)


def test_complete_request_moves_other_logs_away(site: Site) -> None:
    site.ask(request(partition(0), partition(1)))
    site.ask(request(partition(2)))
    assert len(site.hosted) == 3
    site.ask(request(partition(0, leader_epoch=4), type=FULL))
    assert site.hosted == [("t", 0)]
    names = [name for name in site.broker.files.listdir(LOG_DIR) if name.startswith("t-")]
    assert [name.endswith("-stray") for name in sorted(names)] == [False, True, True]


def test_complete_request_with_an_invalid_state_keeps_the_log(site: Site) -> None:
    site.ask(request(partition(0, leader_epoch=4)))
    site.ask(request(partition(0, leader_epoch=2), type=FULL))
    assert site.hosted == [("t", 0)]


def test_two_thousand_partitions_leave_room_for_other_clients() -> None:
    broker = metered_broker(rows=cluster_rows())
    broker.broker.cluster_replicas = join_cluster(
        broker, NoPeers(), broker_epoch=11, topic_overrides=lambda _: {}
    )
    count = 2_000
    states = [partition(number, leader=1 + number % 2) for number in range(count)]
    response = broker.ask(request(*states), 7)
    assert errors(response) == [(number, 0) for number in range(count)]
    moved = [partition(number, leader_epoch=4, leader=2 - number % 2) for number in range(count)]
    response = broker.ask(request(*moved, type=FULL), 7)
    assert errors(response) == [(number, 0) for number in range(count)]
    broker.meter.check()
    assert broker.meter.turns > 2 * count / SLICE


def test_no_partition_is_a_valid_request(site: Site) -> None:
    message = LeaderAndIsrRequest(controller_epoch=1, broker_epoch=11)
    assert site.ask(message) == LeaderAndIsrResponse()
