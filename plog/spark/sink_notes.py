"""Notes of streams that write without duplicates, and their JSON in the topic ``_plog_spark``.

A commit note describes the output of a name, the value of the option ``deduplicate``, after a
batch. A task note precedes the first record of a task: if a later attempt of the task finds the
note, an earlier attempt may have written records. deduplication.py uses the notes, notes_topic.py
reads and writes them. Pure.

The key of a record is the name, or name/task, so that compaction may delete all but the newest
notes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from plog.error_base import PlogError

NOTES_TOPIC: Final = "_plog_spark"

_VERSION: Final = 1

Offsets: TypeAlias = dict[str, dict[int, int]]
"""The offset of each partition, by topic. A topic that does not exist yet has no partitions."""


class NoteError(PlogError):
    """A record of the topic is not a note that this version can read."""


class TaskId(NamedTuple):
    """A task of a batch; its attempts have the same id.

    `query` is Spark's id of the query, which is stored in its checkpoint. `task` is the number of
    the partition of rows.
    """

    query: str
    batch: int
    task: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitNote:
    """The last committed batch, its number of rows, and the ends of the partitions at that time.

    `query` is None, and `batch` is -1, in the first note of a name. `ends` has only the topics of
    the batch; no later batch has records before them.
    """

    query: str | None = None
    batch: int = -1
    rows: int = 0
    ends: Offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskNote:
    """An attempt of `task` has started to write.

    `starts` has the topics that the last commit note lacks; the records of the task follow them.
    """

    task: TaskId
    starts: Offsets


class NotedCommit(NamedTuple):
    """A commit note and its offset in the topic of notes."""

    offset: int
    note: CommitNote


def commit_key(name: str) -> bytes:
    """Return the key of the commit notes of `name`."""
    return name.encode()


def task_key(name: str, task: int) -> bytes:
    """Return the key of the notes of a task."""
    # A name contains no slash.
    return f"{name}/{task}".encode()


def encode_commit(note: CommitNote) -> bytes:
    """Return the JSON of a commit note."""
    return _encode(query=note.query, batch=note.batch, rows=note.rows, ends=note.ends)


def encode_task(note: TaskNote) -> bytes:
    """Return the JSON of a task note; its key has the number of the task."""
    return _encode(query=note.task.query, batch=note.task.batch, starts=note.starts)


def _encode(**fields: object) -> bytes:
    # JSON turns the numbers of partitions into strings.
    return json.dumps({"version": _VERSION, **fields}, separators=(",", ":")).encode()


def decode_commit(value: bytes | None) -> CommitNote:
    """Return a commit note. Raises NoteError."""
    found = _decode(value)
    try:
        query = found["query"]
        return CommitNote(
            query=None if query is None else str(query),
            batch=int(found["batch"]),
            rows=int(found["rows"]),
            ends=_offsets(found["ends"]),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _malformed(error) from None


def decode_task(task: int, value: bytes | None) -> TaskNote:
    """Return a note of the task with this number. Raises NoteError."""
    found = _decode(value)
    try:
        return TaskNote(
            task=TaskId(str(found["query"]), int(found["batch"]), task),
            starts=_offsets(found["starts"]),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _malformed(error) from None


def merged_starts(notes: Iterable[TaskNote]) -> Offsets | None:
    """Return the smallest starts in the notes of one task, or None if there are no notes."""
    merged: Offsets | None = None
    for note in notes:
        merged = {} if merged is None else merged
        for topic, starts in note.starts.items():
            known = merged.setdefault(topic, dict(starts))
            # A partition that a note lacks did not exist at the time: its records start at 0.
            merged[topic] = {
                partition: min(offset, starts[partition])
                for partition, offset in known.items()
                if partition in starts
            }
    return merged


def _decode(value: bytes | None) -> dict[str, Any]:
    try:
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
