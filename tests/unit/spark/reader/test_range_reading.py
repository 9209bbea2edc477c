"""read_range returns the records of a task, and handles records deleted since it was planned."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from plog.client.consumer.arrow import BuildBatch
from plog.client.consumer.completed_fetch import ColumnRun
from plog.errors import OffsetOutOfRange, RequestTimedOut
from plog.records.record_columns import RecordColumns
from plog.spark.reader import range_reading
from plog.spark.reader.data_loss import DataLossError
from plog.spark.reader.offset_range import OffsetRange
from plog.spark.reader.range_reading import read_range
from plog.spark.reader.reading_options import ReadingOptions
from plog.types import TopicPartition
from tests.unit.client.consumer.test_completed_fetch import batch, fetched

pa = pytest.importorskip("pyarrow")

T0 = TopicPartition("t", 0)
STRICT = ReadingOptions(client={})
LENIENT = ReadingOptions(client={}, fail_on_data_loss=False)


class ScriptedConsumer:
    """Returns one record per batch; the log start moves after `deletes_after` batches."""

    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = start, end
        self.deletes_after: int | None = None
        self.new_start = start
        self.is_closed = False
        self.failure: Exception | None = None

    def arrow_batches(
        self,
        partition: TopicPartition,
        start: int,
        stop: int,
        *,
        max_records: int,
        build: BuildBatch,
    ) -> Iterator[Any]:
        for offset in range(start, stop):
            if self.failure is not None:
                raise self.failure
            if not self.start <= offset < self.end:
                raise OffsetOutOfRange(f"offset {offset}")
            columns = RecordColumns()
            assert max_records > 0
            runs: list[ColumnRun] = fetched(batch(offset)).take_columns(columns, 1)
            yield build(columns, runs)
            if self.deletes_after is not None:
                self.deletes_after -= 1
                if self.deletes_after == 0:
                    self.start = self.new_start

    def beginning_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, self.start)

    def end_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, self.end)

    def close(self) -> None:
        self.is_closed = True


Kept = list[ScriptedConsumer]


@pytest.fixture
def using(monkeypatch: pytest.MonkeyPatch) -> Callable[[ScriptedConsumer], Kept]:
    """Return a function that makes the worker use a consumer; it returns those that it keeps."""

    def use(consumer: ScriptedConsumer) -> Kept:
        kept: Kept = []
        monkeypatch.setattr(range_reading, "take_consumer", lambda _: consumer)
        monkeypatch.setattr(range_reading, "keep_consumer", lambda _, one: kept.append(one))
        return kept

    return use


def of(start: int, end: int) -> OffsetRange:
    return OffsetRange(partition=T0, start_offset=start, end_offset=end)


def offsets(wanted: OffsetRange, options: ReadingOptions) -> list[int]:
    return [offset for one in read_range(wanted, options) for offset in one["offset"].to_pylist()]


def test_consumer_is_kept_after_the_range(using: Callable[[ScriptedConsumer], Kept]) -> None:
    consumer = ScriptedConsumer(0, 9)
    kept = using(consumer)
    assert offsets(of(2, 5), STRICT) == [2, 3, 4]
    assert kept == [consumer]
    assert not consumer.is_closed


def test_consumer_is_closed_when_the_task_is_abandoned(
    using: Callable[[ScriptedConsumer], Kept],
) -> None:
    consumer = ScriptedConsumer(0, 9)
    kept = using(consumer)
    batches: Any = read_range(of(2, 5), STRICT)
    next(batches)
    batches.close()
    assert consumer.is_closed
    assert kept == []


def test_consumer_is_closed_after_an_error(using: Callable[[ScriptedConsumer], Kept]) -> None:
    consumer = ScriptedConsumer(0, 9)
    consumer.failure = RequestTimedOut("late")
    kept = using(consumer)
    with pytest.raises(RequestTimedOut):
        offsets(of(2, 5), STRICT)
    assert consumer.is_closed
    assert kept == []


def test_retention_during_the_task_is_an_error(using: Callable[[ScriptedConsumer], Kept]) -> None:
    consumer = ScriptedConsumer(0, 9)
    consumer.deletes_after, consumer.new_start = 2, 6
    using(consumer)
    with pytest.raises(DataLossError, match="offsets 4 to 5 of t-0 are missing"):
        offsets(of(2, 9), STRICT)


def test_reading_continues_after_retention_when_permitted(
    using: Callable[[ScriptedConsumer], Kept],
) -> None:
    consumer = ScriptedConsumer(0, 9)
    consumer.deletes_after, consumer.new_start = 2, 6
    using(consumer)
    assert offsets(of(2, 9), LENIENT) == [2, 3, 6, 7, 8]


@pytest.mark.parametrize(("start", "end"), [(7, 9), (0, 1)])
def test_reading_ends_when_all_records_are_missing(
    using: Callable[[ScriptedConsumer], Kept], start: int, end: int
) -> None:
    using(ScriptedConsumer(start, end))
    assert offsets(of(3, 5), LENIENT) == []


def test_headers_are_read_on_request(using: Callable[[ScriptedConsumer], Kept]) -> None:
    using(ScriptedConsumer(0, 9))
    [one] = read_range(of(2, 3), STRICT)
    assert "headers" not in one.schema.names
    [one] = read_range(of(2, 3), ReadingOptions(client={}, include_headers=True))
    assert "headers" in one.schema.names
