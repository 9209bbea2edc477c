"""plog/cli/send_results.py: each record's outcome is told once, with few callbacks."""

from __future__ import annotations

from threading import Lock

from plog.cli.send_results import SendResults
from plog.client.producer.producer_batch import ProducerBatch, SendHandle
from plog.errors import CorruptMessage
from plog.types import TopicPartition


class Told:
    def __init__(self) -> None:
        self.written: list[int] = []
        self.failed: list[int] = []
        self.outcomes: SendResults[int] = SendResults(
            self.written.extend, lambda tag, error: self.failed.append(tag)
        )


def _batch(partition: int = 0) -> ProducerBatch:
    where = TopicPartition("t", partition)
    return ProducerBatch(where, Lock(), order=(0, 0), created_s=0.0, limit_bytes=1000)


def _add(batch: ProducerBatch) -> SendHandle:
    batch.records.append((-1, 0, None, b"v" * 10, ()))
    return SendHandle(batch, len(batch.records) - 1)


def test_records_of_one_batch_are_told_together() -> None:
    told, batch = Told(), _batch()
    for tag in range(5):
        told.outcomes.watch(tag, _add(batch))
    assert told.written == []
    assert len(batch._watchers) == 1
    batch.succeed(7, -1)
    assert told.written == [0, 1, 2, 3, 4]


def test_batches_may_take_turns() -> None:
    told, first, second = Told(), _batch(0), _batch(1)
    for tag in range(6):
        told.outcomes.watch(tag, _add((first, second)[tag % 2]))
    second.succeed(0, -1)
    assert told.written == [1, 3, 5]
    first.fail(CorruptMessage())
    assert told.failed == [0, 2, 4]


def test_a_batch_may_be_done_before_its_last_record_is_watched() -> None:
    told, batch = Told(), _batch()
    first, late = _add(batch), _add(batch)
    told.outcomes.watch(0, first)
    batch.succeed(0, -1)
    told.outcomes.watch(1, late)
    assert told.written == [0, 1]


def test_single_records_may_be_at_fault() -> None:
    told, batch = Told(), _batch()
    for tag in range(3):
        told.outcomes.watch(tag, _add(batch))
    batch.fail(CorruptMessage(), {1: CorruptMessage("it is this one")})
    assert told.failed == [0, 1, 2]


def test_the_parts_of_a_batch_that_was_split_are_told_when_they_are_done() -> None:
    told, batch = Told(), _batch()
    for tag in range(4):
        told.outcomes.watch(tag, _add(batch))
    first, second = batch.split(1000)
    first.succeed(0, -1)
    assert told.written == [0, 1]
    second.fail(CorruptMessage())
    assert told.failed == [2, 3]
    assert told.written == [0, 1]
