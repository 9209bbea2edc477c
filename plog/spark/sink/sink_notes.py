"""Notes of streams that write without duplicates, and their JSON in the topic ``_plog_spark``.

A commit note describes the output of a name, the value of the option ``deduplicate``, after a
batch. A task note precedes the first record of an attempt of a task: a later attempt learns from it
that records may exist. deduplication.py uses the notes, notes_topic.py reads and writes them. Pure.

The key of a record is the name, or name/task, so that compaction may delete all but the newest
notes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from plog.error_base import PlogError
from plog.spark.sink.record_marks import BatchId

NOTES_TOPIC: Final = "_plog_spark"

# A plog that ignored what a later version notes could write rows twice.
_VERSION: Final = 1

Offsets: TypeAlias = dict[str, dict[int, int]]
"""The offset of each partition, by topic. A topic that does not exist yet has no partitions."""


class NoteError(PlogError):
    """A record of the topic is not a note that this version can read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitNote:
    """The last committed batch, its number of rows, and the ends of the partitions at that time.

    `batch` is None in the first note of a name. `ends` has only the topics of the batch; records of
    later batches follow them.
    """

    batch: BatchId | None = None
    rows: int = 0
    ends: Offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskNote:
    """An attempt of a task has started to write.

    `run` is the id of one execution of the batch. `starts` has the topics that the last commit note
    lacks; the records of all attempts so far follow them.
    """

    batch: BatchId
    run: str
    task: int
    attempt: bytes
    starts: Offsets


class NotedCommit(NamedTuple):
    """A commit note and its offset in the topic of notes."""

    offset: int
    note: CommitNote


@dataclass(frozen=True, slots=True, kw_only=True)
class NameNotes:
    """What the notes of a name say.

    `starts` has each batch with task notes after the last commit note, so that it was begun and not
    committed: usually none, and never more than one of the same query. `end_offset` is the end of
    the topic of notes when they were read.
    """

    last: NotedCommit
    starts: Mapping[BatchId, Offsets]
    end_offset: int


def commit_key(name: str) -> bytes:
    """Return the key of the commit notes of `name`."""
    return name.encode()


def task_key(name: str, task: int) -> bytes:
    """Return the key of the notes of a task."""
    # A name contains no slash.
    return f"{name}/{task}".encode()


def task_of_key(name: str, key: bytes | None) -> int | None:
    """Return the task whose notes have this key; None for other keys."""
    prefix, _, task = (key or b"").rpartition(b"/")
    return int(task) if prefix == name.encode() and task.isdigit() else None


def encode_commit(note: CommitNote) -> bytes:
    """Return the JSON of a commit note."""
    # The first note of a name has no batch, but the same fields.
    query, batch = (None, -1) if note.batch is None else note.batch
    return _encode(query=query, batch=batch, rows=note.rows, ends=note.ends)


def encode_task(note: TaskNote) -> bytes:
    """Return the JSON of a task note; its key has the number of the task."""
    query, batch = note.batch
    return _encode(
        query=query, batch=batch, run=note.run, attempt=note.attempt.hex(), starts=note.starts
    )


def _encode(**fields: object) -> bytes:
    # JSON turns the numbers of partitions into strings.
    return json.dumps({"version": _VERSION, **fields}, separators=(",", ":")).encode()


def decode_commit(value: bytes | None) -> CommitNote:
    """Return a commit note. Raises NoteError."""
    found = _decode(value)
    try:
        query = found["query"]
        return CommitNote(
            batch=None if query is None else BatchId(str(query), int(found["batch"])),
            rows=int(found["rows"]),
            ends=_offsets(found["ends"]),
        )
    # Other programs may write to the topic, so a field can have any type.
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _malformed(error) from None


def decode_task(task: int, value: bytes | None) -> TaskNote:
    """Return a note of the task with this number. Raises NoteError."""
    found = _decode(value)
    try:
        return TaskNote(
            batch=BatchId(str(found["query"]), int(found["batch"])),
            run=str(found["run"]),
            task=task,
            attempt=bytes.fromhex(found["attempt"]),
            starts=_offsets(found["starts"]),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _malformed(error) from None


def starts_by_batch(notes: Iterable[TaskNote]) -> dict[BatchId, Offsets]:
    """Return the smallest starts in the notes of each batch."""
    starts: dict[BatchId, list[Offsets]] = {}
    for note in notes:
        starts.setdefault(note.batch, []).append(note.starts)
    return {batch: merged_starts(every) for batch, every in starts.items()}


def merged_starts(every: Iterable[Offsets]) -> Offsets:
    """Return the smallest start of each partition; a missing one means 0."""
    merged: Offsets = {}
    for some in every:
        for topic, starts in some.items():
            known = merged.setdefault(topic, starts)
            # A partition that is missing did not exist at the time, so its records start at 0.
            merged[topic] = {
                partition: min(offset, starts[partition])
                for partition, offset in known.items()
                if partition in starts
            }
    return merged


def _decode(value: bytes | None) -> dict[str, Any]:
    try:
        # A tombstone has no value, and is not a note.
        found = json.loads(value or b"")
    except (ValueError, RecursionError) as error:
        raise _malformed(error) from None
    if not isinstance(found, dict):
        raise _malformed("not a JSON object")
    version = found.get("version")
    if version != _VERSION:
        raise NoteError(
            f"cannot read a note in {NOTES_TOPIC}: its version is {version}, and this plog reads"
            f" version {_VERSION}; use the newer plog"
        )
    return found


def _offsets(found: Mapping[str, Mapping[str, Any]]) -> Offsets:
    return {
        str(topic): {int(partition): int(offset) for partition, offset in offsets.items()}
        for topic, offsets in found.items()
    }


def _malformed(reason: object) -> NoteError:
    return NoteError(
        f"cannot read a note in {NOTES_TOPIC}: {reason}; only plog may write to this topic;"
        " set another name as deduplicate"
    )
