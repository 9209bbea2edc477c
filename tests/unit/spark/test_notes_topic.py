"""The last commit note of a name is found from the end, among the notes of others."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, cast

import pytest

from plog.client.consumer.simple_consumer import SimpleConsumer
from plog.client.faces.blocking import Producer
from plog.client.values import ConsumerRecord
from plog.records.batch import TimestampType
from plog.spark.notes_topic import append_note, last_commit, task_notes
from plog.spark.sink_notes import (
    CommitNote,
    NoteError,
    TaskId,
    TaskNote,
    commit_key,
    encode_commit,
    encode_task,
    task_key,
)
from plog.types import TopicPartition

TASK = TaskId("q", 5, 2)


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

    def task(self, name: str, task: TaskId, **starts: dict[int, int]) -> None:
        note = TaskNote(task=task, starts=starts)
        self.add(task_key(name, task.task), encode_task(note))

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
    return CommitNote(query="q", batch=batch, rows=1, ends={"t": {0: batch}})


def test_name_without_notes_has_no_last_commit() -> None:
    notes = Notes()
    assert last_commit(notes.consumer, "a") is None
    notes.commit("b", 1)
    notes.task("a", TASK)
    notes.add(None, b"not a note")
    assert last_commit(notes.consumer, "a") is None


def test_last_commit_is_the_newest_of_its_name() -> None:
    notes = Notes(start=7)
    for batch in range(3):
        notes.commit("a", batch)
        notes.commit("ab", batch + 10)
        notes.task("a", TASK)
    assert last_commit(notes.consumer, "a") == (13, commit_note(2))


def test_only_the_end_of_a_long_topic_is_read_for_a_recent_note() -> None:
    notes = Notes()
    for batch in range(2000):
        notes.commit("a", batch)
    found = last_commit(notes.consumer, "a")
    assert found is not None
    assert found.note.batch == 1999
    assert notes.ranges == [(1500, 2000)]


@pytest.mark.parametrize("others", [499, 500, 501, 2499, 2500, 2501, 20_000])
def test_old_note_is_found_before_any_number_of_others(others: int) -> None:
    notes = Notes(start=3)
    notes.commit("a", 1)
    for _ in range(others):
        notes.add(b"other", b"")
    assert last_commit(notes.consumer, "a") == (3, commit_note(1))


def test_note_is_found_after_compaction() -> None:
    notes = Notes()
    for batch in range(1200):
        notes.commit("a", batch)
    for offset in range(1200):
        if offset != 300:
            del notes.records_by_offset[offset]
    assert last_commit(notes.consumer, "a") == (300, commit_note(300))


def test_malformed_note_of_the_name_is_an_error() -> None:
    notes = Notes()
    notes.commit("a", 1)
    notes.add(b"a", b"x")
    with pytest.raises(NoteError):
        last_commit(notes.consumer, "a")


def test_task_notes_are_those_of_the_task_after_the_commit() -> None:
    notes = Notes()
    notes.task("a", TASK, before={0: 1})
    notes.commit("a", 4)
    notes.task("a", TASK, t={0: 2})
    notes.task("b", TASK, t={0: 3})
    for other in (
        TASK._replace(query="p"),
        TASK._replace(batch=4),
        TASK._replace(task=1),
        TASK._replace(task=22),
    ):
        notes.task("a", other, t={0: 4})
    notes.task("a", TASK, t={0: 5})
    assert task_notes(notes.consumer, "a", TASK, 1) == [
        TaskNote(task=TASK, starts={"t": {0: 2}}),
        TaskNote(task=TASK, starts={"t": {0: 5}}),
    ]


def test_no_notes_follow_the_last_commit() -> None:
    notes = Notes()
    notes.commit("a", 4)
    assert task_notes(notes.consumer, "a", TASK, 0) == []


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
