"""Batches, their parts, and the handles of their records."""

from __future__ import annotations

from threading import Lock
from typing import Any

import pytest

from plog.client.producer.producer_batch import (
    RECORD_OVERHEAD_MAX,
    ProducerBatch,
    SendHandle,
    handle_behind,
    is_batch_written,
    metadata_of,
    share_batch,
    size_of_record,
)
from plog.client.values import RecordMetadata
from plog.errors import CorruptMessage
from plog.records.builder import build_batch
from plog.records.codec import RecordFields
from plog.types import TopicPartition

TP = TopicPartition("t", 3)


def batch_of(*values: bytes) -> ProducerBatch:
    batch = ProducerBatch(TP, Lock(), order=(1, 0), created_s=5.0, limit_bytes=1_000)
    batch.records = [(-1, 1_000, None, value, ()) for value in values]
    return batch


def test_handle_returns_outcome_of_its_record() -> None:
    batch = batch_of(b"a", b"bc")
    handle = SendHandle(batch, 1)
    assert not handle.done()
    batch.succeed(70, -1)
    assert handle.done()
    assert handle.error() is None
    assert handle.metadata() == RecordMetadata("t", 3, 71, 1_000, -1, 2)


def test_handle_reaches_other_records_of_its_batch() -> None:
    batch, other = batch_of(b"a", b"b"), batch_of(b"c")
    handle = SendHandle(batch, 0)
    assert share_batch(handle, SendHandle(batch, 1))
    assert not share_batch(handle, SendHandle(other, 0))
    assert not is_batch_written(handle)
    batch.succeed(70, -1)
    assert is_batch_written(handle)
    assert metadata_of(handle_behind(handle, 1)).offset == 71
    other.fail(CorruptMessage())
    assert not is_batch_written(SendHandle(other, 0))


def test_unknown_offset_stays_unknown() -> None:
    batch = batch_of(b"a", b"b")
    batch.succeed(-1, 2_000)
    assert SendHandle(batch, 1).metadata()[2:4] == (-1, 2_000)


def test_single_records_may_have_their_own_errors() -> None:
    batch = batch_of(b"a", b"b")
    theirs, its = ValueError("the others"), ValueError("this one")
    batch.fail(theirs, {1: its})
    assert SendHandle(batch, 0).error() is theirs
    with pytest.raises(ValueError, match="this one"):
        SendHandle(batch, 1).metadata()


def test_handle_does_not_keep_records_in_memory() -> None:
    batch = batch_of(b"x" * 1000)
    batch.encoded = b"y" * 1000
    batch.succeed(0, -1)
    assert (batch.records, batch.encoded, batch.count) == ([], None, 1)


def test_parts_fill_the_limit_up_to_half_the_batch() -> None:
    records = [b"x" * 89] * 8  # Each record takes 100 bytes.
    assert [part.count for part in batch_of(*records).split(61 + 300)] == [3, 3, 2]
    assert [part.count for part in batch_of(*records).split(100_000)] == [4, 4]


@pytest.mark.parametrize("sizes", [(1, 1), (500, 1), (1, 500), (1, 1, 1), (0, 0)])
def test_split_makes_at_least_two_parts(sizes: tuple[int, ...]) -> None:
    for limit_bytes in (0, 61 + 100, 100_000):
        parts = batch_of(*[b"x" * size for size in sizes]).split(limit_bytes)
        assert len(parts) > 1
        assert sum(part.count for part in parts) == len(sizes)
        assert all(part.count for part in parts)


def test_handles_and_callbacks_follow_records_into_nested_parts() -> None:
    batch = batch_of(*[b"%d" % number for number in range(8)])
    handles = [SendHandle(batch, index) for index in range(8)]
    offsets: list[Any] = []
    for index in range(8):
        batch.watch(index, lambda metadata, error: offsets.append(metadata and metadata.offset))
    first, second = batch.split(61 + 8 * 6)
    quarters = second.split(61 + 2 * 12)
    assert [part.order for part in (first, *quarters)] == [(1, 0), (1, 4), (1, 6)]
    assert not batch.is_finished
    first.succeed(10, -1)
    quarters[1].succeed(30, -1)
    quarters[0].fail(ValueError())
    assert batch.is_finished
    assert offsets == [10, 11, 12, 13, 30, 31, None, None]
    assert [handle.error() is None for handle in handles] == [True] * 4 + [False] * 2 + [True] * 2
    assert handles[7].metadata().offset == 31


def test_parts_keep_age_of_batch_and_do_not_linger() -> None:
    for part in batch_of(b"a", b"b").split(80):
        assert (part.created_s, part.is_urgent) == (5.0, True)


RECORDS: list[RecordFields] = [
    (-1, 1_000, None, b"x" * 200, ()),
    (-1, 1_000, b"k" * 16, b"x" * 5_000, ()),
    (-1, 1_000, None, None, (("name", b"value"), ("other", None))),
]


@pytest.mark.parametrize("record", RECORDS)
def test_record_size_is_a_close_estimate(record: RecordFields) -> None:
    """The estimate is compared with the growth of a batch of similar records."""
    several = [record] * 60
    added = (len(build_batch(several)) - len(build_batch(several[:30]))) / 30
    assert added <= size_of_record(record) <= added + 8
    assert size_of_record(record) < RECORD_OVERHEAD_MAX + 5_100
