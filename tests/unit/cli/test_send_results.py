"""plog/cli/send_results.py: each record's result is reported once, with few callbacks."""

from __future__ import annotations

from threading import Lock

from plog.cli.send_results import SendResults
from plog.client.producer.producer_batch import ProducerBatch, SendHandle
from plog.errors import CorruptMessage
from plog.types import TopicPartition


class Results:
    """The tags that `SendResults` has reported."""

    def __init__(self) -> None:
        self.written: list[int] = []
        self.failed: list[int] = []
        self.send_results: SendResults[int] = SendResults(
            self.written.extend, lambda tag, error: self.failed.append(tag)
        )


def _batch(partition: int = 0) -> ProducerBatch:
    where = TopicPartition("t", partition)
    return ProducerBatch(where, Lock(), order=(0, 0), created_s=0.0, limit_bytes=1000)


def _add(batch: ProducerBatch) -> SendHandle:
    batch.records.append((-1, 0, None, b"v" * 10, ()))
    return SendHandle(batch, len(batch.records) - 1)


def test_records_of_one_batch_are_reported_together() -> None:
    results, batch = Results(), _batch()
    for tag in range(5):
        results.send_results.watch(tag, _add(batch))
    assert results.written == []
    assert len(batch._watchers) == 1
    batch.succeed(7, -1)
    assert results.written == [0, 1, 2, 3, 4]


def test_records_of_alternating_batches_are_reported() -> None:
    results, first, second = Results(), _batch(0), _batch(1)
    for tag in range(6):
        results.send_results.watch(tag, _add((first, second)[tag % 2]))
    second.succeed(0, -1)
    assert results.written == [1, 3, 5]
    first.fail(CorruptMessage())
    assert results.failed == [0, 2, 4]


def test_record_watched_after_its_batch_completed_is_reported() -> None:
    results, batch = Results(), _batch()
    first, late = _add(batch), _add(batch)
    results.send_results.watch(0, first)
    batch.succeed(0, -1)
    results.send_results.watch(1, late)
    assert results.written == [0, 1]


def test_failure_of_one_record_fails_the_whole_batch() -> None:
    results, batch = Results(), _batch()
    for tag in range(3):
        results.send_results.watch(tag, _add(batch))
    batch.fail(CorruptMessage(), {1: CorruptMessage("this record")})
    assert results.failed == [0, 1, 2]


def test_parts_of_a_split_batch_are_reported_when_they_complete() -> None:
    results, batch = Results(), _batch()
    for tag in range(4):
        results.send_results.watch(tag, _add(batch))
    first, second = batch.split(1000)
    first.succeed(0, -1)
    assert results.written == [0, 1]
    second.fail(CorruptMessage())
    assert results.failed == [2, 3]
    assert results.written == [0, 1]
