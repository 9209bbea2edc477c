"""The transaction index: lookups against a naive filter, truncation, damage, and a full disk."""

from __future__ import annotations

import errno
import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plogd.log.segment.index_file import CorruptIndex
from plogd.log.segment.transaction_index import (
    AbortedTransaction,
    TransactionIndex,
    encode_entries,
)
from plogd.log.segment.uncached_lookup import UncachedLookup
from tests.helpers.sim.sim_file import open_file
from tests.helpers.sim.sim_files import SimFiles

PATH = "/txnindex"
BASE = 100


def _index(files: SimFiles, base_offset: int = BASE) -> TransactionIndex:
    return TransactionIndex(files, PATH, base_offset)


def _history(seed: int, count: int, producers: int = 5) -> list[AbortedTransaction]:
    """Return the aborted transactions of a random log that begins at `BASE`."""
    chance = random.Random(seed)
    found: list[AbortedTransaction] = []
    ongoing: dict[int, int] = {}
    offset = BASE
    while len(found) < count:
        producer_id = chance.randrange(producers)
        first_offset = ongoing.pop(producer_id, None)
        if first_offset is None:
            ongoing[producer_id] = offset
        elif chance.random() < 0.8:
            stable_offset = min(ongoing.values(), default=offset + 1)
            found.append(AbortedTransaction(producer_id, first_offset, offset, stable_offset))
        offset += chance.randrange(1, 4)
    return found


def _long_open(count: int) -> list[AbortedTransaction]:
    """Return a history in which the transaction that began first ends last."""
    found = [
        AbortedTransaction(1, first, first + 1, BASE)
        for first in range(BASE + 1, BASE + 1 + 2 * count, 2)
    ]
    end_offset = found[-1].last_offset + 1
    return [*found, AbortedTransaction(7, BASE, end_offset, end_offset + 1)]


def _filled(files: SimFiles, history: list[AbortedTransaction]) -> TransactionIndex:
    index = _index(files)
    for aborted in history:
        index.append(aborted)
    return index


def _check(
    index: TransactionIndex, history: list[AbortedTransaction], start: int, end: int
) -> None:
    """Compare a lookup with a filter over all entries."""
    found, is_complete = index.collect(start, end, nowait=False)
    assert found == [one for one in history if one.last_offset >= start and one.first_offset < end]
    later = [one for one in history if one.last_offset >= start]
    assert is_complete == any(one.last_stable_offset >= end for one in later)


# -- entries and lookups ----------------------------------------------------------------------


def test_entries_on_disk_equal_those_of_kafka() -> None:
    files = SimFiles()
    index = _filled(files, [AbortedTransaction(7, 103, 109, 105)])
    index.flush()
    expected = struct.pack(">hqqqq", 0, 7, 103, 109, 105)
    assert (
        files.read_file(PATH) == expected == encode_entries([AbortedTransaction(7, 103, 109, 105)])
    )
    assert len(expected) == 34


def test_empty_index_finds_nothing() -> None:
    index = _index(SimFiles())
    assert index.collect(0, 1 << 40, nowait=False) == ([], False)
    assert index.last_entry == index.empty_entry


@pytest.mark.parametrize(
    ("start", "end", "found"),
    [
        (100, 103, []),
        (100, 104, [7]),
        (109, 110, [7]),
        (110, 111, []),
        (110, 113, [8]),
        (109, 113, [7, 8]),
        (116, 999, []),
    ],
)
def test_lookup_finds_the_transactions_that_overlap_the_offsets(
    start: int, end: int, found: list[int]
) -> None:
    index = _filled(
        SimFiles(), [AbortedTransaction(7, 103, 109, 110), AbortedTransaction(8, 112, 115, 116)]
    )
    some, _ = index.collect(start, end, nowait=False)
    assert [one.producer_id for one in some] == found


def test_lookup_is_complete_if_all_later_transactions_begin_above_the_offsets() -> None:
    index = _filled(
        SimFiles(), [AbortedTransaction(7, 103, 109, 105), AbortedTransaction(8, 105, 115, 116)]
    )
    assert index.collect(100, 105, nowait=False)[1]
    assert index.collect(100, 116, nowait=False)[1]
    assert not index.collect(100, 117, nowait=False)[1]


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    count=st.sampled_from([1, 5, 120, 511, 512, 513, 1300]),
    producers=st.sampled_from([1, 2, 5, 40]),
    is_flushed=st.booleans(),
)
def test_any_lookup_equals_a_filter_over_all_entries(
    seed: int, count: int, producers: int, is_flushed: bool
) -> None:
    files, history = SimFiles(), _history(seed, count, producers)
    index = _filled(files, history)
    if is_flushed:
        index.flush()
        index = _index(files)
    chance = random.Random(seed)
    last = history[-1].last_offset
    for _ in range(60):
        start = chance.randrange(BASE - 2, last + 3)
        _check(index, history, start, start + chance.choice([1, 3, 40, 700, last]))


def test_transaction_that_is_open_for_a_long_time_is_found_from_all_its_offsets() -> None:
    files, history = SimFiles(), _long_open(3000)
    index = _filled(files, history)
    index.flush()
    for one in (index, _index(files)):
        for start in range(BASE, history[-1].last_offset, 97):
            found, _ = one.collect(start, start + 1, nowait=False)
            assert history[-1] in found
            assert len(found) <= 2


def test_lookup_reads_only_the_blocks_with_transactions_in_the_offsets() -> None:
    files, history = SimFiles(), _long_open(5000)
    index = _filled(files, history)
    index.flush()
    read = index.file.pread
    sizes: list[int] = []

    class Counting:
        path = PATH

        def pread(self, length: int, position: int) -> bytes:
            sizes.append(length)
            return read(length, position)

    index.file = Counting()  # type: ignore[assignment]
    index.collect(BASE + 4, BASE + 5, nowait=False)
    assert sum(sizes) <= 4 * 512 * 34


# -- truncation and reopening -----------------------------------------------------------------


@pytest.mark.parametrize("is_flushed", [False, True])
@pytest.mark.parametrize("kept", [0, 1, 100, 511, 512, 513, 1024, 1299, 1300])
def test_truncated_index_equals_one_to_which_the_rest_was_never_added(
    kept: int, is_flushed: bool
) -> None:
    files, history = SimFiles(), _history(3, 1300)
    index = _filled(files, history)
    if is_flushed:
        index.flush()
    offset = history[kept].last_offset if kept < len(history) else history[-1].last_offset + 1
    index.truncate_to(offset)
    assert index.count == kept
    for start in range(BASE, history[-1].last_offset + 2, 53):
        _check(index, history[:kept], start, start + 30)
    for aborted in history[kept:]:
        index.append(aborted)
    index.flush()
    assert files.read_file(PATH) == encode_entries(history)
    for start in range(BASE, history[-1].last_offset + 2, 53):
        _check(index, history, start, start + 30)


def test_truncation_removes_the_transaction_whose_marker_is_at_the_offset() -> None:
    index = _filled(SimFiles(), [AbortedTransaction(7, 103, 109, 110)])
    index.truncate_to(110)
    assert index.count == 1
    index.truncate_to(109)
    assert (index.count, index.last_entry) == (0, index.empty_entry)


def test_reopened_index_continues_at_its_end() -> None:
    files, history = SimFiles(), _history(5, 700)
    index = _filled(files, history[:600])
    index.flush()
    index.close()
    index = _index(files)
    assert (index.count, index.last_entry) == (600, history[599])
    for aborted in history[600:]:
        index.append(aborted)
    index.flush()
    assert files.read_file(PATH) == encode_entries(history)


def test_entries_must_be_added_in_order() -> None:
    index = _filled(SimFiles(), [AbortedTransaction(7, 103, 109, 105)])
    with pytest.raises(AssertionError):
        index.append(AbortedTransaction(8, 105, 109, 110))
    assert index.count == 1


def test_last_stable_offset_of_an_entry_is_never_below_an_earlier_one() -> None:
    files = SimFiles()
    index = _filled(files, [AbortedTransaction(7, 103, 109, 110)])
    index.append(AbortedTransaction(8, 105, 111, 104))
    index.flush()
    assert _index(files).last_entry == AbortedTransaction(8, 105, 111, 110)


# -- damage -----------------------------------------------------------------------------------

GOOD = encode_entries([AbortedTransaction(7, 103, 109, 105), AbortedTransaction(8, 105, 115, 116)])


def _entry(*fields: int) -> bytes:
    return struct.pack(">hqqqq", *fields)


@pytest.mark.parametrize(
    "content",
    [
        GOOD + b"\0",
        GOOD[:-1],
        GOOD[:33],
        b"\x77" * 34,
        b"\xff" * 34,
        GOOD + bytes(34),
        GOOD + GOOD,
        GOOD[34:] + GOOD[:34],
        bytes(34),
        bytes(3400),
        _entry(1, 7, 103, 109, 105),  # An unknown version.
        _entry(0, -1, 103, 109, 105),  # No producer.
        _entry(0, 7, -1, 109, 105),  # No first offset.
        _entry(0, 7, 110, 109, 105),  # Ends before it begins.
        _entry(0, 7, 109, 109, 105),  # Has no records.
        _entry(0, 7, 93, 99, 98),  # The marker is in an earlier segment.
        _entry(0, 7, 103, 109, -1),  # No last stable offset.
        _entry(0, 7, 103, 109, 111),  # A later transaction may begin at 110.
        _entry(0, 7, 103, 109, 105) + _entry(0, 8, 105, 115, 104),
    ],
)
def test_damage_is_detected_when_the_index_is_opened(content: bytes) -> None:
    files = SimFiles()
    files.open_append(PATH).append(content)
    with pytest.raises(CorruptIndex):
        _index(files)


@pytest.mark.parametrize("content", [bytes(34), bytes(340)])
def test_zeros_are_detected_in_the_first_segment_of_a_log(content: bytes) -> None:
    files = SimFiles()
    files.open_append(PATH).append(content)
    with pytest.raises(CorruptIndex):
        _index(files, 0)


@pytest.mark.parametrize("content", [b"", GOOD, encode_entries(_long_open(1500))])
def test_valid_index_can_be_opened(content: bytes) -> None:
    files = SimFiles()
    files.open_append(PATH).append(content)
    assert _index(files).count == len(content) // 34


def test_index_of_a_transaction_that_began_in_an_earlier_segment_is_valid() -> None:
    files = SimFiles()
    files.open_append(PATH).append(_entry(0, 7, 3, 100, 101))
    assert _index(files).count == 1


def test_file_that_becomes_shorter_is_reported_by_the_lookup() -> None:
    files = SimFiles()
    index = _filled(files, _history(1, 600))
    index.flush()
    files.overwrite(PATH, files.read_file(PATH)[: 34 * 550])
    with pytest.raises(CorruptIndex):
        index.collect(BASE, 1 << 40, nowait=False)


# -- full and failing disks -------------------------------------------------------------------


def _fail(files: SimFiles, name: str, code: int = errno.ENOSPC) -> None:
    files.fail_when(lambda operation: operation.name == name, code)


def test_entries_stay_in_memory_while_the_disk_is_full() -> None:
    files, history = SimFiles(), _history(2, 900)
    index = _filled(files, history[:150])
    _fail(files, "append")
    for aborted in history[150:]:
        index.append(aborted)
    for start in range(BASE, history[-1].last_offset, 41):
        _check(index, history, start, start + 20)
    with pytest.raises(OSError, match="No space"):
        index.flush()
    assert index.count == 900
    files.fail_no_more()
    index.flush()
    assert files.read_file(PATH) == encode_entries(history)


def test_failed_disk_leaves_the_index_without_the_new_entry() -> None:
    files, history = SimFiles(), _history(2, 300)
    index = _index(files)
    _fail(files, "append", errno.EIO)
    count = 0
    for aborted in history:
        try:
            index.append(aborted)
        except OSError:
            break
        count += 1
    assert 0 < index.count == count < 300
    assert index.last_entry == history[count - 1]
    files.fail_no_more()
    for aborted in history[count:]:
        index.append(aborted)
    index.flush()
    assert files.read_file(PATH) == encode_entries(history)


@pytest.mark.parametrize("kept", [0, 5, 511, 512, 600])
def test_failed_truncation_changes_the_lookups_and_is_completed_by_the_next_flush(
    kept: int,
) -> None:
    files, history = SimFiles(), _history(4, 1200)
    index = _filled(files, history)
    index.flush()
    _fail(files, "truncate")
    with pytest.raises(OSError, match="No space"):
        index.truncate_to(history[kept].last_offset)
    for start in range(BASE, history[-1].last_offset, 41):
        _check(index, history[:kept], start, start + 20)
    files.fail_no_more()
    for aborted in history[kept:800]:
        index.append(aborted)
    index.flush()
    assert files.read_file(PATH) == encode_entries(history[:800])
    for start in range(BASE, history[-1].last_offset, 41):
        _check(index, history[:800], start, start + 20)


def test_index_that_cannot_be_created_is_an_error() -> None:
    files = SimFiles()
    _fail(files, "create")
    with pytest.raises(OSError, match="No space"):
        _index(files)


# -- the page cache ---------------------------------------------------------------------------


def test_lookup_on_the_reactor_does_not_wait_for_the_disk() -> None:
    files, history = SimFiles(), _history(6, 1300)
    _filled(files, history).flush()
    index = _index(files)
    expected = index.collect(BASE + 50, BASE + 90, nowait=False)
    files.everything_cached = False
    open_file(index.file)._inode.is_warm = False
    lookups = 0
    while True:
        try:
            found = index.collect(BASE + 50, BASE + 90, nowait=True)
            break
        except UncachedLookup as error:
            error.warm()
            lookups += 1
    assert found == expected
    assert lookups > 0


def test_lookup_of_entries_in_memory_needs_no_page_cache() -> None:
    files, history = SimFiles(), _history(6, 100)
    index = _filled(files, history)
    files.everything_cached = False
    found, _ = index.collect(BASE, BASE + 30, nowait=True)
    assert found == [one for one in history if one.first_offset < BASE + 30]
