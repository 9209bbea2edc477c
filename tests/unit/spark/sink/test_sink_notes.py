"""Notes survive the way through JSON, and wrong ones are refused."""

from __future__ import annotations

import pytest

from plog.spark.sink.record_marks import BatchId
from plog.spark.sink.sink_notes import (
    CommitNote,
    NoteError,
    Offsets,
    TaskNote,
    commit_key,
    decode_commit,
    decode_task,
    encode_commit,
    encode_task,
    merged_starts,
    starts_by_batch,
    task_key,
    task_of_key,
)

BATCH = BatchId("q", 4)


def task_note(starts: Offsets, batch: BatchId = BATCH) -> TaskNote:
    return TaskNote(batch=batch, run="r", task=7, attempt=b"\x00\xff", starts=starts)


@pytest.mark.parametrize(
    "note",
    [
        CommitNote(ends={}),
        CommitNote(batch=BATCH, rows=9, ends={"t": {0: 5, 11: 0}, "é": {}}),
    ],
)
def test_commit_note_is_read_as_written(note: CommitNote) -> None:
    assert decode_commit(encode_commit(note)) == note


def test_task_note_is_read_as_written() -> None:
    note = task_note({"t": {0: 5, 1: 2**60}, "missing": {}})
    assert decode_task(7, encode_task(note)) == note


def test_key_tells_the_task() -> None:
    assert task_of_key("a", task_key("a", 11)) == 11
    assert task_of_key("a.b-c", task_key("a.b-c", 0)) == 0
    for other in (None, b"", b"/", b"a/", b"a/x", b"/1", commit_key("a"), task_key("aa", 1)):
        assert task_of_key("a", other) is None


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
        b'{"version":1,"query":"q","batch":1,"run":"r","attempt":"x","starts":{}}',
        b'{"version":1,"query":"q","batch":1,"run":"r","attempt":1,"starts":{}}',
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


def test_smallest_start_of_all_notes_counts() -> None:
    assert merged_starts([]) == {}
    every: list[Offsets] = [{"t": {0: 5, 1: 3}}, {"t": {0: 4, 1: 9}, "u": {0: 1}}]
    assert merged_starts(every) == {"t": {0: 4, 1: 3}, "u": {0: 1}}


@pytest.mark.parametrize("is_reversed", [False, True])
def test_partition_that_a_note_lacks_has_no_start(is_reversed: bool) -> None:
    every: list[Offsets] = [{"t": {}, "u": {0: 1}}, {"t": {0: 7}, "u": {0: 2, 1: 3}}]
    assert merged_starts(every[::-1] if is_reversed else every) == {"t": {}, "u": {0: 1}}


def test_starts_of_each_batch_are_apart() -> None:
    other = BatchId("q", 5)
    notes = [
        task_note({"t": {0: 5}}),
        task_note({"t": {0: 1}}, other),
        task_note({"t": {0: 3}, "u": {}}),
    ]
    assert starts_by_batch(notes) == {BATCH: {"t": {0: 3}, "u": {}}, other: {"t": {0: 1}}}
    assert starts_by_batch([]) == {}


def test_batch_with_notes_is_known_even_without_starts() -> None:
    assert starts_by_batch([task_note({})]) == {BATCH: {}}
