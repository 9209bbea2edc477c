"""The offset index: lookups, truncation and the sanity check."""

from __future__ import annotations

import struct

import pytest

from plogd.log.segment.index_file import CorruptIndex
from plogd.log.segment.offset_index import OffsetIndex, OffsetPosition
from tests.helpers.sim.sim_files import SimFiles


def _index(files: SimFiles, base_offset: int = 100, max_bytes: int = 1 << 20) -> OffsetIndex:
    return OffsetIndex(files, "/index", base_offset, max_bytes)


def _filled(files: SimFiles) -> OffsetIndex:
    index = _index(files)
    for offset, position in ((110, 1000), (120, 2000), (130, 3000)):
        index.append(offset, position)
    index.flush()
    return index


def test_entries_on_disk_equal_those_of_kafka() -> None:
    files = SimFiles()
    _filled(files)
    assert files.read_file("/index") == struct.pack(">6i", 10, 1000, 20, 2000, 30, 3000)


@pytest.mark.parametrize(
    ("offset", "found"),
    [
        (100, (100, 0)),
        (109, (100, 0)),
        (110, (110, 1000)),
        (119, (110, 1000)),
        (129, (120, 2000)),
        (130, (130, 3000)),
        (10**9, (130, 3000)),
    ],
)
def test_lookup_finds_the_entry_at_or_below(offset: int, found: tuple[int, int]) -> None:
    assert _filled(SimFiles()).lookup(offset) == found


def test_lookup_in_an_empty_index_returns_the_segment_start() -> None:
    index = _index(SimFiles())
    assert index.lookup(500) == index.last_entry == OffsetPosition(100, 0)


def test_reopened_index_continues_at_its_end() -> None:
    files = SimFiles()
    _filled(files).close()
    index = _index(files)
    assert (index.count, index.last_entry) == (3, (130, 3000))
    index.append(140, 4000)
    assert index.lookup(139) == (130, 3000)


@pytest.mark.parametrize(
    ("offset", "left"), [(100, 0), (110, 0), (111, 1), (120, 1), (130, 2), (131, 3), (999, 3)]
)
def test_truncate_removes_entries_at_or_above_the_offset(offset: int, left: int) -> None:
    index = _filled(SimFiles())
    index.truncate_to(offset)
    assert index.count == left
    index.append(999, 9999)
    assert index.lookup(1000) == (999, 9999)


def test_index_is_full_at_its_last_entry() -> None:
    index = _index(SimFiles(), max_bytes=17)
    index.append(101, 1)
    assert not index.is_full
    index.append(102, 2)
    assert index.is_full


def test_valid_index_passes_the_sanity_check() -> None:
    _index(SimFiles()).sanity_check(0)
    _filled(SimFiles()).sanity_check(3001)


@pytest.mark.parametrize(
    "content",
    [
        struct.pack(">2i", 10, 1000) + b"\0",
        struct.pack(">4i", 10, 1000, 0, 0),
        bytes(80),
        b"\xff" * 80,
        struct.pack(">4i", 20, 1000, 10, 2000),
        struct.pack(">4i", 10, 2000, 20, 1000),
        struct.pack(">2i", 10, 5000),
        struct.pack(">2i", 10, 0),
    ],
)
def test_inconsistent_index_fails_the_sanity_check(content: bytes) -> None:
    files = SimFiles()
    files.open_append("/index").append(content)
    with pytest.raises(CorruptIndex):
        _index(files).sanity_check(5000)
