"""IndexFile: the fixed-size entries of both indexes, tested through OffsetIndex."""

from __future__ import annotations

import errno
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plogd.log.segment.index_file import CorruptIndex
from plogd.log.segment.offset_index import OffsetIndex, OffsetPosition
from tests.helpers.sim.sim_files import SimFiles

ENTRY = struct.Struct(">ii")


def _index(files: SimFiles, max_bytes: int = 1 << 20) -> OffsetIndex:
    return OffsetIndex(files, "/index", 0, max_bytes)


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
        assert index._floor_slot(0, key) == expected
        assert index._floor_slot(1, 2 * key) == expected


def test_floor_slot_is_found_in_a_long_index() -> None:
    files = SimFiles()
    files.open_append("/index").append(b"".join(ENTRY.pack(3 * i, i) for i in range(5000)))
    index = _index(files)
    for key in (-1, 0, 2, 3, 4, 1535, 1536, 7500, 14_996, 14_997, 14_998, 10**6):
        assert index._floor_slot(0, key) == min(key // 3, 4999)


def test_look_up_in_an_empty_index_reads_no_bytes() -> None:
    files = SimFiles()
    index = _index(files)
    files.everything_cached = False
    assert index._floor_slot(0, 5, nowait=True) == -1


def test_index_capacity_is_a_whole_number_of_entries() -> None:
    assert _index(SimFiles(), 23).max_entries == 2


def test_failed_flush_leaves_the_entries_unchanged() -> None:
    files = SimFiles()
    index = _index(files)
    index.append(1, 2)
    index.flush()
    index.append(3, 4)
    files.fail_when(lambda operation: operation.name in ("append", "truncate"), errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        index.flush()
    assert [index.entry(0), index.entry(1)] == [OffsetPosition(1, 2), OffsetPosition(3, 4)]
    files.fail_no_more()
    index.truncate_to_count(1)
    index.append(5, 6)
    index.flush()
    for one in (index, _index(files)):
        assert [one.entry(0), one.entry(1)] == [OffsetPosition(1, 2), OffsetPosition(5, 6)]
    assert index.file.size() == 16


@settings(deadline=None)
@given(st.lists(st.one_of(st.integers(1, 40), st.just("flush"), st.just("truncate")), max_size=60))
def test_entries_are_found_in_memory_and_in_the_file(steps: list[int | str]) -> None:
    files = SimFiles()
    index = _index(files)
    entries: list[OffsetPosition] = []
    for step in steps:
        if step == "flush":
            index.flush()
            assert files.read_file("/index") == b"".join(ENTRY.pack(*entry) for entry in entries)
        elif step == "truncate":
            del entries[len(entries) * 2 // 3 :]
            index.truncate_to_count(len(entries))
        else:
            assert isinstance(step, int)
            # Several entries per step, so that the bisection reads more than one block.
            for _ in range(step**2):
                last = entries[-1].offset if entries else 0
                entries.append(OffsetPosition(last + 2, 10 * last + 20))
                index.append(*entries[-1])
        assert index.last_entry == (entries[-1] if entries else index.empty_entry)
        for entry in entries[:: max(1, len(entries) // 20)]:
            assert index.lookup(entry.offset) == index.lookup(entry.offset + 1) == entry
            assert index.lookup(entry.offset, nowait=True) == entry


def test_file_with_a_partial_entry_is_corrupt_until_truncated() -> None:
    files = SimFiles()
    files.open_append("/index").append(bytes(19))
    index = _index(files)
    with pytest.raises(CorruptIndex):
        index._check_size()
    index.truncate_to_count(index.count)
    index._check_size()
    assert index.file.size() == 16


def test_reading_a_missing_entry_raises_corrupt_index() -> None:
    files = SimFiles()
    index = _index(files)
    index.append(1, 2)
    index.flush()
    files.overwrite("/index", b"")
    with pytest.raises(CorruptIndex):
        index.entry(0)
