"""Decide which rows of a stream to write, so that each row is written once. Pure.

A task leaves a note before its first record, and a mark in each record (record_marks.py). An
attempt that finds a note of an earlier attempt reads the records from the ends in the last commit
note on, and omits as many of each row as it finds. The order of rows does not matter, because it
may change when a shuffle is repeated.

Why the task is part of the mark: two tasks of a batch may have equal rows. If each omitted what the
other one wrote, a row would be lost. So if the rows are distributed to other tasks when a batch is
repeated, rows may be written twice, but none is lost.

Why a note and not the number of the attempt: Spark counts attempts from 0 again when it repeats a
stage or a batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from plog.client.values import ConsumerRecord
from plog.error_base import PlogError
from plog.records.codec import Header
from plog.spark.record_marks import TopicMarks
from plog.spark.sink_notes import NOTES_TOPIC, CommitNote, NotedCommit, Offsets, TaskId


class DeduplicationError(PlogError):
    """Rows cannot be written without the risk of losing or repeating some."""


class TaskLog(Protocol):
    """The notes and the output of a task, in the cluster."""

    def earlier_starts(self) -> Offsets | None:
        """Return the starts in the notes of earlier attempts, or None if there are no notes."""
        ...

    def ends(self, topics: Sequence[str]) -> Offsets:
        """Return the ends of the partitions of each topic; none for a missing topic."""
        ...

    def append_note(self, starts: Offsets) -> None:
        """Write a task note, and wait until it is safe."""
        ...

    def records(self, starts: Offsets) -> Iterable[ConsumerRecord]:
        """Return all records of the topics from `starts` on, of all partitions that exist now."""
        ...


class TaskFilter:
    """Marks the rows of one attempt of a task, and omits those that earlier attempts wrote."""

    def __init__(self, task: TaskId, last: CommitNote, log: TaskLog) -> None:
        self.omitted = 0
        self._task = task
        self._noted_ends = last.ends
        self._log = log
        self._marks: dict[str, TopicMarks] = {}
        self._starts: Offsets | None = None
        """The starts in the notes of this task; None until the first row."""
        self._is_repeat = False

    @property
    def topics(self) -> frozenset[str]:
        """The topics of the rows so far."""
        return frozenset(self._marks)

    def prepare(self, topics: Iterable[str]) -> None:
        """Make ready for rows of `topics`: write a note, or find the records of earlier attempts.

        It must return before a row of a new topic is written.
        """
        new = sorted(set(topics) - self._marks.keys())
        if not new:
            return
        is_first = self._starts is None
        if is_first:
            earlier = self._log.earlier_starts()
            self._is_repeat = earlier is not None
            self._starts = earlier or {}
        assert self._starts is not None
        unknown = [name for name in new if name not in self._noted_ends | self._starts]
        if unknown:
            self._starts |= self._log.ends(unknown)
        # A repeat finds the note of the earlier attempt, unless it lacks a topic. Notes are
        # cumulative, because compaction keeps only the last one.
        if unknown or (is_first and not self._is_repeat):
            self._log.append_note(self._starts)
        marks = {name: TopicMarks(self._task, name) for name in new}
        known = self._starts | self._noted_ends
        starts = {name: known[name] for name in new if name not in unknown}
        if self._is_repeat and starts:
            for record in self._log.records(starts):
                marks[record.topic].add_earlier(record)
        self._marks |= marks

    def headers_to_write(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        headers: Sequence[Header],
    ) -> Sequence[Header] | None:
        """Return the headers of a row with the mark, or None if the row must be omitted."""
        marked = self._marks[topic].headers_to_write(key, value, headers, partition)
        if marked is None:
            self.omitted += 1
        return marked


def is_committed(task: TaskId, last: CommitNote) -> bool:
    """Return whether the batch of `task` is the last committed one, so that nothing is to write.

    Raises DeduplicationError if a later batch was committed. The rows of `task` may then be others
    than those of the committed batch with its number.
    """
    if last.query != task.query or last.batch < task.batch:
        return False
    if last.batch > task.batch:
        raise DeduplicationError(
            f"cannot write batch {task.batch} of query {task.query}: {NOTES_TOPIC} shows that batch"
            f" {last.batch} is written, so the checkpoint is older than the output; restore the"
            " newer checkpoint, or set another name as deduplicate to write the rows again"
        )
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOutcome:
    """A successful task: its number of rows, including omitted ones, and their topics.

    `last_offset` is the offset of the commit note that the task used.
    """

    task: TaskId
    rows: int
    topics: frozenset[str]
    last_offset: int


def topics_to_note(
    outcomes: Sequence[TaskOutcome], name: str, last: NotedCommit
) -> frozenset[str] | None:
    """Return the topics of a batch whose tasks have succeeded, or None if it is noted already.

    `last` is the last commit note of `name` now. Raises DeduplicationError if another query has
    written in the meantime, or if the batch had other rows when it was committed.
    """
    task = outcomes[0].task
    rows = sum(outcome.rows for outcome in outcomes)
    batch = f"batch {task.batch} of query {task.query}"
    if (last.note.query, last.note.batch) == (task.query, task.batch):
        if last.note.rows != rows:
            raise DeduplicationError(
                f"cannot commit {batch}: it now has {rows} rows, and had {last.note.rows} when it"
                " was written, so its checkpoint has changed; restore the newer checkpoint, or set"
                f" another name than {name} as deduplicate to write the rows again"
            )
        return None
    if any(outcome.last_offset != last.offset for outcome in outcomes):
        raise DeduplicationError(
            f"cannot commit {batch}: query {last.note.query} has written with deduplicate={name} in"
            " the meantime; use a different name for each query"
        )
    return frozenset().union(*(outcome.topics for outcome in outcomes))


def next_note(outcomes: Sequence[TaskOutcome], ends: Offsets) -> CommitNote:
    """Return the commit note of a batch whose tasks have succeeded."""
    task = outcomes[0].task
    rows = sum(outcome.rows for outcome in outcomes)
    return CommitNote(query=task.query, batch=task.batch, rows=rows, ends=ends)
