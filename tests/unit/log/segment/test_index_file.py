"""The fixed-size entries that both indexes are made of."""

from __future__ import annotations

import errno
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plogd.log.segment.index_file import CorruptIndex, IndexFile
from tests.helpers.sim_files import SimFiles

ENTRY = struct.Struct(">ii")


def _index(files: SimFiles, max_bytes: int = 1 << 20) -> IndexFile:
    return IndexFile(files, "/index", ENTRY, max_bytes)


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 5000), unique=True, max_size=1500).map(sorted),
    st.lists(st.integers(-1, 5001), min_size=1, max_size=20),
)
def test_floor_slot_is_the_last_entry_not_above_the_key(keys: list[int], wanted: list[int]) -> None:
    files = SimFiles()
    files.open_append("/index").append(b"".join(ENTRY.pack(key, 2 * key) for key in keys))
    index = _index(files)
    for key in wanted:
        expected = max((slot for slot, have in enumerate(keys) if have <= key), default=-1)
        assert index.floor_slot(0, key) == expected
        assert index.floor_slot(1, 2 * key) == expected


def test_floor_slot_in_a_long_index() -> None:
    files = SimFiles()
    files.open_append("/index").append(b"".join(ENTRY.pack(3 * i, i) for i in range(5000)))
    index = _index(files)
    for key in (-1, 0, 2, 3, 4, 1535, 1536, 7500, 14_996, 14_997, 14_998, 10**6):
        assert index.floor_slot(0, key) == min(key // 3, 4999)


def test_look_up_in_an_empty_index_reads_nothing() -> None:
    files = SimFiles()
    index = _index(files)
    files.everything_cached = False
    assert index.floor_slot(0, 5, nowait=True) == -1


def test_room_is_counted_in_whole_entries() -> None:
    assert _index(SimFiles(), 23).max_entries == 2


def test_failed_append_leaves_the_entries_as_they_were() -> None:
    files = SimFiles()
    index = _index(files)
    index.append(1, 2)
    files.fail_when(lambda operation: operation.name in ("append", "truncate"), errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        index.append(3, 4)
    assert index.count == 1
    files.fail_no_more()
    index.append(5, 6)
    assert [index.entry(0), index.entry(1)] == [(1, 2), (5, 6)]
    assert index.file.size() == 16


def test_a_ragged_file_is_corrupt_until_it_is_cut() -> None:
    files = SimFiles()
    files.open_append("/index").append(bytes(19))
    index = _index(files)
    with pytest.raises(CorruptIndex):
        index.check_size()
    index.truncate(index.count)
    index.check_size()
    assert index.file.size() == 16


def test_entry_that_is_not_there_any_more_is_corruption() -> None:
    files = SimFiles()
    index = _index(files)
    index.append(1, 2)
    files.overwrite("/index", b"")
    with pytest.raises(CorruptIndex):
        index.entry(0)
