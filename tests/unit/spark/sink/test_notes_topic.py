"""The last commit note of a name is found from the end, among the notes of others."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, cast

import pytest

from plog.client.consumer.simple_consumer import SimpleConsumer
from plog.client.faces.blocking import Producer
from plog.client.values import ConsumerRecord
from plog.records.batch import TimestampType
from plog.spark.sink.notes_topic import append_note, notes_of_name, task_notes
from plog.spark.sink.record_marks import BatchId
from plog.spark.sink.sink_notes import (
    CommitNote,
    NoteError,
    Offsets,
    TaskNote,
    commit_key,
    encode_commit,
    encode_task,
    task_key,
)
from plog.types import TopicPartition

BATCH = BatchId("q", 5)


class Notes:
    """The records of the topic of notes; some offsets may be missing."""

    def __init__(self, start: int = 0) -> None:
        self.start = self.end = start
        self.records_by_offset: dict[int, ConsumerRecord] = {}
        self.ranges: list[tuple[int, int]] = []

    def add(self, key: bytes | None, value: bytes | None) -> None:
        self.records_by_offset[self.end] = ConsumerRecord(
            "_plog_spark", 0, self.end, 0, TimestampType.CREATE_TIME, key, value, (), 0
        )
        self.end += 1

    def commit(self, name: str, batch: int) -> None:
        self.add(commit_key(name), encode_commit(commit_note(batch)))

    def task(self, name: str, task: int, starts: Offsets, batch: BatchId = BATCH) -> TaskNote:
        note = TaskNote(batch=batch, run="r", task=task, attempt=b"a", starts=starts)
        self.add(task_key(name, task), encode_task(note))
        return note

    @property
    def consumer(self) -> SimpleConsumer:
        return cast(SimpleConsumer, self)

    def beginning_offsets(self, partitions: Collection[TopicPartition]) -> dict[Any, int]:
        return dict.fromkeys(partitions, self.start)

    def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[Any, int]:
        return dict.fromkeys(partitions, self.end)

    def records(self, partition: TopicPartition, start: int, stop: int) -> Iterator[ConsumerRecord]:
        assert partition == ("_plog_spark", 0)
        assert self.start <= start <= stop <= self.end
        self.ranges.append((start, stop))
        for offset in range(start, stop):
            if offset in self.records_by_offset:
                yield self.records_by_offset[offset]


def commit_note(batch: int) -> CommitNote:
    return CommitNote(batch=BatchId("q", batch), rows=1, ends={"t": {0: batch}})


def last(notes: Notes, name: str) -> tuple[int, CommitNote] | None:
    found = notes_of_name(notes.consumer, name)
    return None if found is None else found.last


def test_name_without_a_commit_has_no_notes() -> None:
    notes = Notes()
    assert last(notes, "a") is None
    notes.commit("b", 1)
    notes.task("a", 1, {})
    notes.add(None, b"not a note")
    assert last(notes, "a") is None


def test_last_commit_is_the_newest_of_its_name() -> None:
    notes = Notes(start=7)
    for batch in range(3):
        notes.commit("a", batch)
        notes.commit("ab", batch + 10)
        notes.task("a", 1, {})
    assert last(notes, "a") == (13, commit_note(2))


def test_only_the_end_of_a_long_topic_is_read_for_a_recent_note() -> None:
    notes = Notes()
    for batch in range(2000):
        notes.commit("a", batch)
    assert last(notes, "a") == (1999, commit_note(1999))
    assert notes.ranges == [(1500, 2000)]


@pytest.mark.parametrize("others", [499, 500, 501, 2499, 2500, 2501, 20_000])
def test_old_note_is_found_before_any_number_of_others(others: int) -> None:
    notes = Notes(start=3)
    notes.commit("a", 1)
    for _ in range(others):
        notes.add(b"other", b"")
    assert last(notes, "a") == (3, commit_note(1))


def test_note_is_found_after_compaction() -> None:
    notes = Notes()
    for batch in range(1200):
        notes.commit("a", batch)
    for offset in range(1200):
        if offset != 300:
            del notes.records_by_offset[offset]
    assert last(notes, "a") == (300, commit_note(300))


def test_malformed_note_of_the_name_is_an_error() -> None:
    notes = Notes()
    notes.commit("a", 1)
    notes.add(b"a", b"x")
    with pytest.raises(NoteError):
        last(notes, "a")


@pytest.mark.parametrize("others", [0, 600, 3000])
def test_batches_that_were_begun_after_the_commit_are_found(others: int) -> None:
    notes = Notes()
    notes.task("a", 1, {"before": {0: 1}})
    notes.commit("a", 4)
    another = BatchId("p", 0)
    notes.task("a", 1, {"t": {0: 5}})
    for _ in range(others):
        notes.task("b", 1, {"t": {0: 1}})
    notes.task("a", 1, {"t": {0: 3}})
    notes.task("a", 0, {"u": {0: 2}}, another)
    found = notes_of_name(notes.consumer, "a")
    assert found is not None
    assert found.last.offset == 1
    assert found.starts == {BATCH: {"t": {0: 3}}, another: {"u": {0: 2}}}
    assert found.end_offset == notes.end


def test_notes_of_a_task_from_an_offset_on_are_found() -> None:
    notes = Notes()
    notes.task("a", 2, {"before": {0: 1}})
    notes.commit("a", 4)
    expected = [notes.task("a", 2, {"t": {0: 2}})]
    notes.task("b", 2, {"t": {0: 3}})
    notes.task("a", 22, {"t": {0: 3}})
    expected.append(notes.task("a", 2, {"t": {0: 5}}))
    assert list(task_notes(notes.consumer, "a", 2, 1)) == expected
    assert list(task_notes(notes.consumer, "a", 2, notes.end)) == []


def test_note_is_appended_after_it_is_flushed() -> None:
    calls: list[Any] = []

    class Sent:
        def result(self) -> Any:
            calls.append("result")
            return type("Metadata", (), {"offset": 12})

    class Sender:
        def send(self, *arguments: Any, **options: Any) -> Sent:
            calls.append((arguments, options))
            return Sent()

        def flush(self) -> None:
            calls.append("flush")

    assert append_note(cast(Producer, Sender()), b"k", b"v") == 12
    assert calls == [(("_plog_spark", b"v", b"k"), {"partition": 0}), "flush", "result"]
