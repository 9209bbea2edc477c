"""Control requests: what each version tells a broker."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from plog.types import TopicPartition
from plog.wire.messages.leader_and_isr import FULL, LeaderAndIsrRequest
from plog.wire.messages.stop_replica import StopReplicaRequest
from plog.wire.messages.update_metadata import UpdateMetadataRequest
from plog.wire.schema import ApiMessage
from plogd.controller.cluster.control_requests import ControlRequests
from plogd.metadata.cache import PartitionState, TopicState
from plogd.metadata.store import BrokerRegistration, Endpoint
from plogd.peers import VersionedRequest

BROKERS = {
    number: BrokerRegistration(
        broker_id=number,
        incarnation_id=bytes(16),
        endpoints=(
            Endpoint(name="CLIENTS", host=f"h{number}", port=9092, security_protocol="SSL"),
            Endpoint(name="INSIDE", host=f"i{number}", port=9093, security_protocol="PLAINTEXT"),
        ),
        rack=f"r{number}",
        broker_epoch=100 + number,
    )
    for number in (1, 2)
}
TOPIC = TopicState(
    name="t",
    topic_id=bytes(15) + b"\x07",
    partitions=(
        PartitionState(
            partition=0,
            leader=1,
            leader_epoch=5,
            replicas=(1, 2),
            isr=(1,),
            partition_epoch=9,
            offline_replicas=(2,),
        ),
        PartitionState(
            partition=3, leader=-1, leader_epoch=2, replicas=(2, 3), isr=(3,), partition_epoch=4
        ),
    ),
)
REQUESTS = ControlRequests(controller_id=7, controller_epoch=12, inter_broker_listener="INSIDE")


def _sent(request: VersionedRequest, version: int) -> Any:
    """Return the request as the broker decodes it."""
    message: ApiMessage = request.build(version)
    data = message.encode(version)
    return type(message).decode(memoryview(data), version)


def _versions(request_type: type[ApiMessage]) -> list[int]:
    return list(range(request_type.min_version, request_type.max_version + 1))


@pytest.mark.parametrize("version", _versions(LeaderAndIsrRequest))
def test_leader_and_isr(version: int) -> None:
    request = REQUESTS.leader_and_isr(
        BROKERS[2], [TOPIC], brokers=BROKERS, new={TopicPartition("t", 3)}, is_full=True
    )
    sent = _sent(request, version)
    assert (sent.controller_id, sent.controller_epoch) == (7, 12)
    assert sent.broker_epoch == 102
    assert [(one.broker_id, one.host_name, one.port) for one in sent.live_leaders] == [
        (1, "i1", 9093)
    ]
    [topic] = sent.topic_states
    assert (topic.topic_name, topic.topic_id, sent.type) == ("t", TOPIC.topic_id, FULL)
    states = topic.partition_states
    assert [
        (one.partition_index, one.leader, one.leader_epoch, one.isr, one.replicas) for one in states
    ] == [(0, 1, 5, [1], [1, 2]), (3, -1, 2, [3], [2, 3])]
    assert [one.partition_epoch for one in states] == [9, 4]
    assert [one.is_new for one in states] == [False, True]


@pytest.mark.parametrize("version", _versions(LeaderAndIsrRequest))
def test_leader_and_isr_of_a_reassignment_after_an_unclean_election(version: int) -> None:
    state = replace(
        TOPIC.partitions[0],
        replicas=(2, 3, 1),
        adding_replicas=(2, 3),
        removing_replicas=(1,),
        is_recovering=True,
    )
    in_sync = replace(state, partition=1, isr=(1, 2))
    topic = replace(TOPIC, partitions=(state, in_sync))
    sent = _sent(REQUESTS.leader_and_isr(BROKERS[2], [topic], brokers=BROKERS), version)
    states = sent.topic_states[0].partition_states
    # Once an added replica is in sync, it may have lost records.
    assert [one.is_new for one in states] == [True, False]
    assert (states[0].adding_replicas, states[0].removing_replicas) == ([2, 3], [1])
    assert states[0].leader_recovery_state == (1 if version >= 6 else 0)


@pytest.mark.parametrize("version", _versions(UpdateMetadataRequest))
def test_update_metadata(version: int) -> None:
    deleted = TopicState(name="d", topic_id=bytes(15) + b"\x08", partitions=TOPIC.partitions[:1])
    request = REQUESTS.update_metadata(
        BROKERS[1], [TOPIC], brokers=BROKERS.values(), deleted=[deleted]
    )
    sent = _sent(request, version)
    assert (sent.controller_id, sent.controller_epoch) == (7, 12)
    assert sent.broker_epoch == 101
    assert [one.id for one in sent.live_brokers] == [1, 2]
    assert [
        (one.listener, one.host, one.port, one.security_protocol)
        for one in sent.live_brokers[0].endpoints
    ] == [("CLIENTS", "h1", 9092, 1), ("INSIDE", "i1", 9093, 0)]
    assert sent.live_brokers[1].rack == "r2"
    states = [
        (topic.topic_name, state) for topic in sent.topic_states for state in topic.partition_states
    ]
    assert [(name, one.partition_index, one.leader) for name, one in states] == [
        ("t", 0, 1),
        ("t", 3, -1),
        ("d", 0, -2),
    ]
    assert [one.zk_version for _, one in states] == [9, 4, 9]
    assert states[0][1].offline_replicas == [2]


@pytest.mark.parametrize(
    ("is_deletion", "keeps_topics"), [(False, False), (True, False), (True, True)]
)
@pytest.mark.parametrize("version", _versions(StopReplicaRequest))
def test_stop_replica(version: int, is_deletion: bool, keeps_topics: bool) -> None:
    request = REQUESTS.stop_replicas(
        BROKERS[1], [TOPIC], is_deletion=is_deletion, keeps_topics=keeps_topics
    )
    sent = _sent(request, version)
    assert (sent.controller_id, sent.controller_epoch) == (7, 12)
    [topic] = sent.topic_states
    assert [
        (one.partition_index, one.leader_epoch, one.delete_partition)
        for one in topic.partition_states
    ] == (
        [(0, -2, True), (3, -2, True)]
        if is_deletion and not keeps_topics
        else [(0, 5, is_deletion), (3, 2, is_deletion)]
    )
