"""UpdateMetadata: versions, and what clients then see."""

from __future__ import annotations

from typing import Any

import pytest

from plog.errors import ErrorCode
from plog.wire.messages.metadata import MetadataRequest
from plog.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from plogd.apis.update_metadata import LEADER_DURING_DELETE
from plogd.metadata.cache import PartitionState
from plogd.metadata.store import Endpoint
from tests.helpers.sim.sim_broker import SimBroker, connection
from tests.helpers.sim.sim_cluster import SimCluster

TOPIC_ID = b"id of t".ljust(16, b"-")


def request(*, leader: int = 2, **fields: Any) -> UpdateMetadataRequest:
    """Return a request with brokers 1 and 2, and one partition of topic t."""
    state = UpdateMetadataPartitionState(
        partition_index=0,
        controller_epoch=1,
        leader=leader,
        leader_epoch=4,
        isr=[2],
        zk_version=6,
        replicas=[2, 1],
        offline_replicas=[1],
    )
    epochs = {"controller_id": 2, "controller_epoch": 1, "broker_epoch": 11}
    message = UpdateMetadataRequest(**(epochs | fields))
    message.topic_states = [
        UpdateMetadataTopicState(topic_name="t", topic_id=TOPIC_ID, partition_states=[state])
    ]
    message.live_brokers = [broker(1), broker(2)]
    return message


def broker(number: int) -> UpdateMetadataBroker:
    endpoints = [
        UpdateMetadataEndpoint(
            port=9092 + index, host=f"b{number}", listener=name, security_protocol=index
        )
        for index, name in enumerate(("PLAINTEXT", "INSIDE"))
    ]
    return UpdateMetadataBroker(id=number, endpoints=endpoints, rack=f"r{number}")


class Site:
    """Broker 1 of a cluster."""

    def __init__(self) -> None:
        self.cluster = SimCluster(1)
        self.cluster.advance(50)
        self.cluster.topic_ids["t"] = TOPIC_ID
        self.broker: SimBroker = self.cluster.brokers[1]
        self.cache = self.broker.broker.cache


@pytest.fixture
def site() -> Site:
    return Site()


@pytest.mark.parametrize("version", [7, 8])
def test_every_version_fills_the_cache(site: Site, version: int) -> None:
    assert site.broker.ask(request(), version).error_code == 0
    assert (site.cache.controller_id, site.cache.live_broker_ids) == (2, {1, 2})
    topic = site.cache.topic("t")
    assert topic is not None
    assert topic.topic_id == TOPIC_ID
    [state] = topic.partitions
    assert state == PartitionState(
        partition=0,
        leader=2,
        leader_epoch=4,
        replicas=(2, 1),
        isr=(2,),
        partition_epoch=6,
        offline_replicas=(1,),
    )
    live = site.cache.live_brokers[2]
    assert list(live.endpoints) == ["PLAINTEXT", "INSIDE"]
    plain = Endpoint(name="PLAINTEXT", host="b2", port=9092, security_protocol="PLAINTEXT")
    assert live.endpoints["PLAINTEXT"] == plain
    inside = live.endpoints["INSIDE"]
    assert (inside.port, inside.security_protocol) == (9093, "SSL")
    assert live.rack == "r2"


def test_clients_see_the_update(site: Site) -> None:
    site.broker.ask(request(), 8)
    answer = site.broker.ask(MetadataRequest(topics=None), 12)
    assert [one.node_id for one in answer.brokers] == [1, 2]
    assert (answer.brokers[1].host, answer.brokers[1].rack) == ("b2", "r2")
    assert answer.controller_id == 2
    [topic] = answer.topics
    [partition] = topic.partitions
    assert (partition.leader_id, partition.leader_epoch) == (2, 4)


def test_deleted_topic_is_removed(site: Site) -> None:
    site.broker.ask(request(), 8)
    site.broker.ask(request(leader=LEADER_DURING_DELETE), 8)
    assert site.cache.topic("t") is None


def test_unknown_security_protocol_is_kept_as_a_number(site: Site) -> None:
    message = request()
    message.live_brokers[1].endpoints[0].security_protocol = 77
    site.broker.ask(message, 8)
    assert site.cache.live_brokers[2].endpoints["PLAINTEXT"].security_protocol == "77"


def test_negative_partition_is_ignored(site: Site) -> None:
    message = request()
    message.topic_states[0].partition_states[0].partition_index = -1
    assert site.broker.ask(message, 8).error_code == 0
    assert site.cache.topic("t") is None


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"controller_epoch": 0}, ErrorCode.STALE_CONTROLLER_EPOCH),
        ({"broker_epoch": 10}, ErrorCode.STALE_BROKER_EPOCH),
    ],
)
def test_stale_epoch_is_rejected(site: Site, fields: dict[str, int], code: ErrorCode) -> None:
    assert site.broker.ask(request(**fields), 8).error_code == code
    assert site.cache.topic("t") is None


def test_other_listener_is_rejected(site: Site) -> None:
    response = site.broker.ask(request(), 8, connection=connection("OUTSIDE"))
    assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert site.cache.topic("t") is None
