"""The time index: creation of entries, lookups, truncation, the sanity check."""

from __future__ import annotations

import struct

import pytest

from plogd.log.segment.index_file import CorruptIndex
from plogd.log.segment.time_index import TimeIndex
from tests.helpers.sim.sim_files import SimFiles


def _index(files: SimFiles, max_bytes: int = 1 << 20) -> TimeIndex:
    return TimeIndex(files, "/timeindex", 100, max_bytes)


def _filled(files: SimFiles) -> TimeIndex:
    index = _index(files)
    for timestamp, offset in ((1000, 110), (2000, 120), (3000, 130)):
        index.maybe_append(timestamp, offset)
    index.flush()
    return index


def test_entries_on_disk_equal_those_of_kafka() -> None:
    files = SimFiles()
    _filled(files)
    assert files.read_file("/timeindex") == struct.pack(">qiqiqi", 1000, 10, 2000, 20, 3000, 30)


def test_only_a_larger_timestamp_makes_an_entry() -> None:
    index = _filled(SimFiles())
    index.maybe_append(3000, 140)
    assert index.count == 3
    index.maybe_append(3001, 150)
    assert index.last_entry == (3001, 150)


def test_no_timestamp_makes_no_entry() -> None:
    index = _index(SimFiles())
    index.maybe_append(-1, 100)
    assert index.count == 0


@pytest.mark.parametrize(
    ("timestamp", "found"),
    [
        (0, (-1, 100)),
        (999, (-1, 100)),
        (1000, (1000, 110)),
        (2999, (2000, 120)),
        (9999, (3000, 130)),
    ],
)
def test_lookup_finds_the_entry_at_or_below(timestamp: int, found: tuple[int, int]) -> None:
    assert _filled(SimFiles()).lookup(timestamp) == found


@pytest.mark.parametrize(("offset", "left"), [(100, 0), (110, 0), (111, 1), (130, 2), (131, 3)])
def test_truncate_removes_entries_at_or_above_the_offset(offset: int, left: int) -> None:
    files = SimFiles()
    index = _filled(files)
    index.truncate_to(offset)
    assert index.count == left == len(files.read_file("/timeindex")) // 12
    assert index.last_entry == ([(-1, 100), (1000, 110), (2000, 120), (3000, 130)][left])


def test_last_slot_is_kept_for_the_entry_at_the_roll() -> None:
    index = _index(SimFiles(), max_bytes=24)
    full = [index.is_full]
    index.maybe_append(1000, 110)
    assert [*full, index.is_full] == [False, True]
    index.maybe_append(2000, 120, skip_full_check=True)
    assert index.count == 2


def test_reopened_index_continues_at_its_end() -> None:
    files = SimFiles()
    _filled(files).close()
    assert _index(files).last_entry == (3000, 130)


def test_valid_index_passes_the_sanity_check() -> None:
    _index(SimFiles()).sanity_check()
    _filled(SimFiles()).sanity_check()


@pytest.mark.parametrize(
    "content",
    [
        struct.pack(">qi", 1000, 10) + b"\0",
        struct.pack(">qiqi", 2000, 10, 1000, 20),
        struct.pack(">qiqi", 1000, 20, 2000, 10),
        struct.pack(">qi", 1000, -1),
        b"\xff" * 24,
    ],
)
def test_inconsistent_time_index_fails_the_sanity_check(content: bytes) -> None:
    files = SimFiles()
    files.open_append("/timeindex").append(content)
    with pytest.raises(CorruptIndex):
        _index(files).sanity_check()
