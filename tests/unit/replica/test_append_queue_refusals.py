"""Refused queued appends, and their effect on later batches of the same producer."""

from __future__ import annotations

import pytest

from plog.errors import ErrorCode
from plog.records.batch import Compression
from plog.records.builder import build_batch
from plog.records.codec import Record
from plog.types import TopicPartition
from plogd.ports import Later
from plogd.replica.delayed_produce import PartitionAppend
from tests.helpers.sim.sim_broker import START_MS, SimBroker, create_topic
from tests.helpers.sim.sim_ports import outcome

MIB = 1 << 20


def make() -> SimBroker:
    """Return a broker with a compacted topic: compressed or large batches wait for a job."""
    broker = SimBroker(plog_produce_parked_max_bytes=2 * MIB).start()
    create_topic(broker, "t", cleanup_policy="compact", max_message_bytes=str(4 * MIB))
    return broker


def send(broker: SimBroker, value: bytes, sequence: int, codec: Compression) -> PartitionAppend:
    """Append a batch of producer 7 and return its result."""
    records = build_batch(
        [Record(timestamp=START_MS, key=b"k", value=value)],
        compression=codec,
        producer_id=7,
        producer_epoch=0,
        base_sequence=sequence,
    )
    appended = broker.broker.replica_manager.append_records(
        [(TopicPartition("t", 0), memoryview(bytearray(records)))],
        required_acks=-1,
        timeout_ms=1000,
    )
    broker.settle()
    [one] = outcome(appended) if isinstance(appended, Later) else appended
    return one


def code(append: PartitionAppend) -> int:
    return 0 if append.error is None else append.error.code


def test_batch_whose_validation_failed_unexpectedly_is_not_overtaken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = make()

    def broken(*args: object, **kwargs: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr("plogd.replica.validation_lanes.validate_batch", broken)
        failed = send(broker, b"first", 0, Compression.GZIP)
    assert code(failed) == ErrorCode.UNKNOWN_SERVER_ERROR
    overtaking = send(broker, b"second", 1, Compression.GZIP)
    assert code(overtaking) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert code(send(broker, b"first", 0, Compression.GZIP)) == 0
    assert code(send(broker, b"second", 1, Compression.GZIP)) == 0


def test_batch_that_is_too_large_to_queue_does_not_block_the_next() -> None:
    broker = make()
    too_large = send(broker, b"v" * 3 * MIB, 0, Compression.NONE)
    assert code(too_large) == ErrorCode.MESSAGE_TOO_LARGE
    assert code(send(broker, b"next", 1, Compression.GZIP)) == 0
