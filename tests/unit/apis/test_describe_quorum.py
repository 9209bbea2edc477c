"""DescribeQuorum: requests and responses as frames."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from plog.errors import ErrorCode
from plog.types import ZERO_UUID, uuid_from_text
from plog.wire.messages.describe_quorum import DescribeQuorumRequest, QuorumPartition, QuorumTopic
from plogd.log.disk.checkpoint_files import read_meta_properties
from tests.helpers.sim.sim_broker import SimBroker, create_topic


def ask(broker: SimBroker, version: int = 2, *asked: tuple[str, int]) -> Any:
    topics = [
        QuorumTopic(topic_name=name, partitions=[QuorumPartition(partition_index=number)])
        for name, number in asked or [("__cluster_metadata", 0)]
    ]
    return broker.ask(DescribeQuorumRequest(topics=topics), version)


def state_of(answer: Any) -> Any:
    assert (answer.error_code, answer.topics[0].topic_name) == (0, "__cluster_metadata")
    [state] = answer.topics[0].partitions
    return state


@pytest.mark.parametrize("version", range(3))
def test_broker_is_the_only_voter_in_every_version(version: int) -> None:
    broker = SimBroker(node_id=4).start()
    answer = ask(broker, version)
    state = state_of(answer)
    assert (state.partition_index, state.error_code, state.leader_id) == (0, 0, 4)
    assert (state.leader_epoch, state.high_watermark, state.observers) == (0, 2, [])
    [voter] = state.current_voters
    assert (voter.replica_id, voter.log_end_offset) == (4, 2)
    now_ms = broker.ports.clock.now_ms() if version >= 1 else -1
    assert (voter.last_fetch_timestamp, voter.last_caught_up_timestamp) == (now_ms, now_ms)
    if version < 2:
        assert (voter.replica_directory_id, answer.nodes) == (ZERO_UUID, [])
        return
    identity = read_meta_properties(broker.files, "/data")
    assert identity is not None
    assert voter.replica_directory_id == uuid_from_text(identity.directory_id) != ZERO_UUID
    [node] = answer.nodes
    actual = [(one.name, one.host, one.port) for one in node.listeners]
    assert (node.node_id, actual) == (4, [("PLAINTEXT", "192.0.2.1", 9092)])


def test_log_end_and_epoch_rise_with_each_start() -> None:
    broker = SimBroker().start()
    before = state_of(ask(broker))
    create_topic(broker, "t", 2)
    after = state_of(ask(broker))
    assert after.high_watermark == before.high_watermark + 3
    assert after.current_voters[0].log_end_offset == after.high_watermark
    assert state_of(ask(broker.restart())).leader_epoch == before.leader_epoch + 1


def test_records_not_yet_durable_are_above_the_high_watermark() -> None:
    broker = SimBroker().start()
    with broker.ports.turn:
        broker.broker.producer_ids.next_id()
    topics = [QuorumTopic(topic_name="__cluster_metadata", partitions=[QuorumPartition()])]
    state = state_of(broker.begin(DescribeQuorumRequest(topics=topics), 2).response())
    assert state.current_voters[0].log_end_offset == 3
    assert state.high_watermark == 2


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize(
    "asked",
    [
        [("t", 0)],
        [("__cluster_metadata", 1)],
        [("__cluster_metadata", 0), ("t", 0)],
        [("__cluster_metadata", 0), ("__cluster_metadata", 0)],
    ],
)
def test_other_partitions_have_no_quorum(version: int, asked: list[tuple[str, int]]) -> None:
    answer = ask(SimBroker().start(), version, *asked)
    actual = [(topic.topic_name, topic.partitions[0].partition_index) for topic in answer.topics]
    assert actual == asked
    codes = {one.error_code for topic in answer.topics for one in topic.partitions}
    assert (answer.error_code, codes) == (0, {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


def test_failed_metadata_log_is_an_error() -> None:
    broker = SimBroker().start()
    broker.broker.log_manager.storage_failed("/data", OSError(errno.EIO, "broken"))
    assert state_of(ask(broker)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
