"""Notes survive the way through JSON, and wrong ones are refused."""

from __future__ import annotations

import pytest

from plog.spark.sink_notes import (
    CommitNote,
    NoteError,
    TaskId,
    TaskNote,
    commit_key,
    decode_commit,
    decode_task,
    encode_commit,
    encode_task,
    merged_starts,
    task_key,
)

TASK = TaskId("q", 4, 7)


@pytest.mark.parametrize(
    "note",
    [
        CommitNote(ends={}),
        CommitNote(query="q", batch=3, rows=9, ends={"t": {0: 5, 11: 0}, "é": {}}),
    ],
)
def test_commit_note_is_read_as_written(note: CommitNote) -> None:
    assert decode_commit(encode_commit(note)) == note


def test_task_note_is_read_as_written() -> None:
    note = TaskNote(task=TASK, starts={"t": {0: 5, 1: 2**60}, "missing": {}})
    assert decode_task(7, encode_task(note)) == note


def test_keys_of_tasks_differ_from_each_other_and_from_that_of_commits() -> None:
    keys = {commit_key("a"), commit_key("b"), task_key("a", 1), task_key("a", 11), task_key("b", 1)}
    assert len(keys) == 5


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"\xff",
        b"[]",
        b'{"version":1}',
        b'{"version":1,"query":"q","batch":"x","rows":0,"ends":{}}',
        b'{"version":1,"query":"q","batch":1,"rows":0,"ends":[]}',
        b'{"version":1,"query":"q","batch":1,"rows":0,"ends":{"t":{"x":0}}}',
        b'{"version":1,"query":"q","batch":1,"rows":0,"ends":{"t":{"0":null}}}',
    ],
)
def test_malformed_note_is_refused(value: bytes | None) -> None:
    with pytest.raises(NoteError, match="cannot read a note in _plog_spark"):
        decode_commit(value)
    with pytest.raises(NoteError, match="only plog may write to this topic"):
        decode_task(0, value)


def test_note_of_a_later_version_is_refused() -> None:
    with pytest.raises(NoteError, match=r"its version is 2.*use the newer plog"):
        decode_commit(b'{"version":2}')


def test_no_notes_are_told_from_notes_without_topics() -> None:
    assert merged_starts([]) is None
    assert merged_starts([TaskNote(task=TASK, starts={})]) == {}


def test_smallest_start_of_all_notes_counts() -> None:
    notes = [
        TaskNote(task=TASK, starts={"t": {0: 5, 1: 3}}),
        TaskNote(task=TASK, starts={"t": {0: 4, 1: 9}, "u": {0: 1}}),
    ]
    assert merged_starts(notes) == {"t": {0: 4, 1: 3}, "u": {0: 1}}


@pytest.mark.parametrize("is_reversed", [False, True])
def test_partition_that_a_note_lacks_has_no_start(is_reversed: bool) -> None:
    notes = [
        TaskNote(task=TASK, starts={"t": {}, "u": {0: 1}}),
        TaskNote(task=TASK, starts={"t": {0: 7}, "u": {0: 2, 1: 3}}),
    ]
    assert merged_starts(notes[::-1] if is_reversed else notes) == {"t": {}, "u": {0: 1}}
