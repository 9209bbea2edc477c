"""Produce to internal topics: only by Kafka's tools, and only records that can be replayed."""

from __future__ import annotations

import pytest

from plog.errors import ErrorCode
from plog.records.builder import build_batch
from plog.records.codec import Record
from plog.wire.internal.group_records import OffsetCommitKey, encode_key
from plog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from plog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.helpers.sim.sim_broker import START_MS, SimBroker, create_topic, produce_request

OFFSETS = "__consumer_offsets"
GOOD = encode_key(OffsetCommitKey(group="g", topic="t", partition=0))
BAD = b"\0\1\0\1gxx"


def make(topic: str, policy: str = "compact") -> SimBroker:
    broker = SimBroker().start()
    config = CreatableTopicConfig(name="cleanup.policy", value=policy)
    internal = CreatableTopic(name=topic, num_partitions=1, replication_factor=1, configs=[config])
    broker.ask(CreateTopicsRequest(topics=[internal]), 5)
    return broker


def write(broker: SimBroker, topic: str, *keys: bytes, client_id: str = "__admin_client") -> int:
    """Produce tombstones with these keys; return the error code."""
    end_offset = broker.log(topic).log_end_offset
    records = [Record(timestamp=START_MS, key=key, value=None) for key in keys]
    request = produce_request(topic, records=build_batch(records))
    answer = broker.ask(request, 9, client_id=client_id)
    code: int = answer.responses[0].partition_responses[0].error_code
    appended = 0 if code else len(keys)
    assert broker.log(topic).log_end_offset == end_offset + appended
    assert broker.bugs == []
    return code


@pytest.mark.parametrize(("client_id", "code"), [("app", 17), ("__admin_client", 0)])
def test_only_kafkas_tools_may_write_to_internal_topic(client_id: str, code: int) -> None:
    assert write(make(OFFSETS), OFFSETS, GOOD, client_id=client_id) == code


@pytest.mark.parametrize("policy", ["compact", "delete"])
@pytest.mark.parametrize("topic", [OFFSETS, "__transaction_state", "__share_group_state"])
def test_internal_topic_refuses_records_that_cannot_be_replayed(topic: str, policy: str) -> None:
    assert write(make(topic, policy), topic, GOOD, BAD) == ErrorCode.INVALID_RECORD


def test_internal_topic_limits_records_per_batch() -> None:
    broker = make(OFFSETS)
    assert write(broker, OFFSETS, *[GOOD] * 10_000) == 0
    assert write(broker, OFFSETS, *[GOOD] * 10_001) == ErrorCode.MESSAGE_TOO_LARGE


def test_groups_work_after_restart_when_the_log_holds_undecodable_records() -> None:
    """An older version or another program may have written such records."""
    broker = SimBroker(offsets_topic_num_partitions=1).start()
    create_topic(broker, "t")
    assert commit(broker) == 0
    log = broker.log(OFFSETS)
    bad = bytearray(build_batch([Record(timestamp=START_MS, key=BAD, value=b"\0\1garbage")]))
    log.append_as_leader(
        memoryview(bad), leader_epoch=log.leader_epochs.latest_epoch, now_ms=START_MS
    )
    broker.settle()
    broker = broker.restart()
    assert commit(broker) == 0
    assert any("skipped 1 records" in line for line in broker.reports)
    assert b"plog_coordinator_skipped_records_total 1" in broker.metrics.expose()


def commit(broker: SimBroker) -> int:
    """Commit an offset as a client without a group; return the error code."""
    request = OffsetCommitRequest(
        group_id="g",
        topics=[
            OffsetCommitRequestTopic(
                name="t",
                partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=0)],
            )
        ],
    )
    answer = broker.ask(request, 7)
    code: int = answer.topics[0].partitions[0].error_code
    return code
