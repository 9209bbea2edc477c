"""The compaction of a log: ranges, groups, progress, a full offset map."""

from __future__ import annotations

import dataclasses
import random
from contextlib import suppress

import pytest

from plog.records.batch import Compression
from plog.records.offset_map import ENTRY_BYTES
from plogd.log.compaction import cleaning
from plogd.log.compaction.cleaned_segment import unfinished_paths
from plogd.log.compaction.cleaning import (
    CannotClean,
    Cleaned,
    Read,
    Replacement,
    SourceSegment,
    clean,
    group_segments,
)
from plogd.log.file_names import LOG_SUFFIX, TXN_INDEX_SUFFIX, segment_path
from plogd.log.segment.index_file import MAX_RELATIVE_OFFSET
from plogd.log.segment.log_segment import LogSegment
from plogd.log.segment.transaction_index import encode_entries
from tests.helpers.log.compacted_log import CONFIG, DIRECTORY, CompactedLog, parse_batches
from tests.helpers.sim.sim_files import SimCrash

SMALL_SEGMENTS = CONFIG.segment_bytes // 4


def _log(keys: int = 5, batches: int = 40, *, seed: int = 1) -> CompactedLog:
    """Return a log with random keys in small segments, of which the last one is the largest."""
    chance = random.Random(seed)
    log = CompactedLog()
    for number in range(batches):
        log.append(
            *[
                (b"k%d" % chance.randrange(keys), chance.choice([None, b"v%d" % number]))
                for _ in range(chance.randint(1, 4))
            ],
            compression=chance.choice(list(Compression)),
        )
        if number % 7 == 6:
            log.roll()
    log.roll()
    return log


def _last_values(log: CompactedLog) -> dict[bytes | None, tuple[int, bytes | None]]:
    return {one.key: (one.offset, one.value) for one in log.records()}


def _replacements(reports: list[cleaning.Report]) -> list[Replacement]:
    return [one for one in reports if isinstance(one, Replacement)]


# -- ranges ---------------------------------------------------------------------------------------


def test_last_record_of_each_key_is_left() -> None:
    log = _log()
    before = _last_values(log)
    reports = log.compact()
    assert _last_values(log) == before
    assert sorted(_last_values(log).values()) == [(one.offset, one.value) for one in log.records()]
    assert reports[-1] == Cleaned(log.end_offset, 5 / ((1 << 20) // ENTRY_BYTES), 0)


def test_log_without_outdated_records_is_not_replaced() -> None:
    log = CompactedLog()
    for number in range(30):
        log.append((b"k%d" % number, b"value" * 60))
        if number % 5 == 4:
            log.roll()
    before = log.contents()
    reports = log.compact()
    assert _replacements(reports) == []
    assert isinstance(reports[-1], Cleaned)
    assert log.contents() == before


def test_only_the_segments_with_outdated_records_are_replaced() -> None:
    log = CompactedLog()
    for number in (0, 1, 2, 1, 3):
        log.append((b"k%d" % number, bytes(SMALL_SEGMENTS * 3)))
        log.roll()
    reports = log.compact()
    assert [one.sources for one in _replacements(reports)] == [[1]]
    assert [batch.base_offset for batch in log.batches()] == [0, 2, 3, 4]


def test_clean_part_loses_the_records_whose_keys_are_in_the_dirty_part() -> None:
    log = CompactedLog()
    log.append((b"a", b"1"), (b"b", b"1"), (b"c", b"1"))
    log.roll()
    log.compact()
    log.append((b"b", b"2"), (b"d", b"1"))
    log.roll()
    log.compact()
    assert [(one.offset, one.key) for one in log.records()] == [
        (0, b"a"),
        (2, b"c"),
        (3, b"b"),
        (4, b"d"),
    ]


def test_dirty_part_may_begin_inside_a_segment_and_inside_a_batch() -> None:
    """Records before it are clean: a key that only they have is not in the map."""
    log = CompactedLog()
    log.append((b"x", b"1"))
    log.append((b"a", b"1"), (b"x", b"2"), (b"b", b"1"))
    log.append((b"c", b"1"), (b"b", b"2"))
    log.roll()
    log.first_dirty_offset = 3
    log.compact()
    assert [one.offset for one in log.records()] == [0, 1, 2, 4, 5]


def test_segment_without_records_is_cleaned() -> None:
    log = CompactedLog()
    log.append((b"a", b"1"))
    log.roll()
    log.append((b"a", bytes(CONFIG.segment_bytes)))
    log.roll()
    log.compact()
    assert log.sealed[0].size_bytes == 0
    log.append((b"b", b"1"))
    log.roll()
    log.compact()
    assert [one.offset for one in log.records()] == [1, 2]


def test_end_of_the_range_is_that_of_its_last_segment() -> None:
    """Its last batches may have been compacted away earlier."""
    log = CompactedLog()
    log.append((b"a", b"1"))
    log.roll()
    log.sealed[0] = log.sealed[0]._replace(end_offset=100)
    log.end_offset = 100
    reports = log.compact()
    assert reports[-1] == Cleaned(100, 1 / ((1 << 20) // ENTRY_BYTES), 0)


def test_aborted_records_do_not_replace_others() -> None:
    log = CompactedLog()
    log.append((b"a", b"old"))
    log.roll()
    log.append((b"a", b"aborted"), producer_id=7, is_transactional=True)
    log.roll()
    log.end_transaction(7, is_commit=False)
    log.append((b"b", b"1"))
    log.roll()
    log.producers.clear()
    reports = log.compact()
    assert [(one.key, one.value) for one in log.records()] == [(b"a", b"old"), (b"b", b"1")]
    assert [batch.base_offset for batch in log.batches()] == [0, 2, 3], "the marker remains"
    [new] = _replacements(reports)
    assert new.sources == [0, 1, 2]
    [aborted] = log.aborted(log.sealed)
    assert (aborted.producer_id, aborted.first_offset, aborted.last_offset) == (7, 1, 2)


def test_transaction_over_several_groups_is_in_the_index_of_its_marker() -> None:
    log = CompactedLog()
    log.append((b"a", b"old"))
    for _ in range(4):
        log.append((b"a", bytes(SMALL_SEGMENTS * 3)), producer_id=7, is_transactional=True)
        log.roll()
    log.end_transaction(7, is_commit=False)
    log.append((b"b", b"1"))
    log.append((b"b", b"2"))
    log.roll()
    log.producers.clear()
    log.compact()
    paths = [segment_path(DIRECTORY, one.base_offset, TXN_INDEX_SUFFIX) for one in log.sealed]
    assert [log.files.exists(path) for path in paths] == [*[False] * (len(paths) - 1), True]
    assert log.files.read_file(paths[-1]) == encode_entries(log.aborted(log.sealed))
    assert [(one.key, one.value) for one in log.records()] == [(b"a", b"old"), (b"b", b"2")]


# -- groups ---------------------------------------------------------------------------------------


def _groups(segments: list[SourceSegment], end_offset: int, limit: int = 100) -> list[list[int]]:
    groups = group_segments(segments, end_offset, limit)
    return [[one.base_offset for one in group] for group in groups]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([100], [[0]]),
        ([101], [[0]]),
        ([50, 50, 1], [[0, 1], [2]]),
        ([50, 51], [[0], [1]]),
        ([101, 1, 99, 101, 1], [[0], [1, 2], [3], [4]]),
        ([0, 0, 100, 0, 1], [[0, 1, 2, 3], [4]]),
        ([0, 0], [[0, 1]]),
    ],
)
def test_adjacent_segments_are_joined_up_to_the_size(
    sizes: list[int], expected: list[list[int]]
) -> None:
    segments = [SourceSegment(n, n + 1, size) for n, size in enumerate(sizes)]
    assert _groups(segments, len(sizes)) == expected


def test_segments_are_joined_only_if_their_offsets_fit_into_an_index() -> None:
    def joined(end_offset: int) -> list[list[int]]:
        return _groups([SourceSegment(7, 9, 1), SourceSegment(9, end_offset, 1)], end_offset)

    assert joined(7 + MAX_RELATIVE_OFFSET) == [[7, 9]]
    assert joined(7 + MAX_RELATIVE_OFFSET + 2) == [[7], [9]]


def test_segments_after_the_end_are_left_out() -> None:
    segments = [SourceSegment(n, n + 10, 40) for n in range(0, 50, 10)]
    assert _groups(segments, 30) == [[0, 10], [20]]
    assert _groups(segments, 21) == [[0, 10], [20]]
    assert _groups(segments, 0) == []


def test_small_segments_become_one() -> None:
    log = CompactedLog()
    for number in range(6):
        log.append((b"k%d" % number, b"v"))
        log.roll()
    before = log.batches()
    reports = log.compact()
    [new] = _replacements(reports)
    assert new.sources == [0, 1, 2, 3, 4, 5]
    assert len(log.sealed) == 1
    assert log.batches() == before


def test_new_segments_do_not_exceed_the_size() -> None:
    log = _log(keys=60, batches=200)
    log.compact()
    assert len(log.sealed) > 3
    # Horizons can make batches a little larger.
    assert all(one.size_bytes < 1.2 * CONFIG.segment_bytes for one in log.sealed)
    for segment in log.sealed:
        offsets = [batch.base_offset for batch in parse_batches(log.read(segment))]
        assert offsets == sorted(offsets)
        assert all(segment.base_offset <= offset < segment.end_offset for offset in offsets)


@pytest.mark.parametrize("interval_bytes", [0, 100, 300])
def test_joined_segments_have_room_in_their_indexes(interval_bytes: int) -> None:
    config = dataclasses.replace(
        CONFIG, segment_bytes=1 << 30, segment_index_bytes=240, index_interval_bytes=interval_bytes
    )
    log = CompactedLog(config=config)
    for number in range(120):
        log.append((b"k%d" % number, b"value"))
        if number % 4 == 3:
            log.roll()
    assert _replacements(log.compact())
    assert len(log.sealed) > 1
    for one in log.sealed:
        segment = LogSegment(log.files, DIRECTORY, one.base_offset, config)
        unindexed = segment.size_bytes - segment.indexes.last_offset_entry.position
        largest = max(header.size_bytes for _, header in segment.records.batches_from(0))
        assert unindexed <= interval_bytes + 2 * largest
        segment.close()


# -- progress -------------------------------------------------------------------------------------


def test_progress_is_reported_after_each_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaning, "SLICE_BYTES", 500)
    log = _log()
    size_bytes = sum(one.size_bytes for one in log.sealed)
    largest = max(
        len(log.read(segment)) // len(parse_batches(log.read(segment))) for segment in log.sealed
    )
    reports = log.compact()
    reads = [one for one in reports if isinstance(one, Read)]
    assert sum(one.read_bytes for one in reads) == 2 * size_bytes, "it reads the log twice"
    assert len(reads) > 2 * size_bytes / (500 + 10 * largest)
    assert max(one.read_bytes for one in reads) < 500 + 10 * largest
    written_bytes = sum(one.size_bytes for one in _replacements(reports))
    assert sum(one.written_bytes for one in reads) == written_bytes


def test_first_pass_reads_only_the_dirty_segments() -> None:
    log = CompactedLog()
    for number in range(4):
        log.append((b"k%d" % number, bytes(SMALL_SEGMENTS * 3)))
        log.roll()
    log.compact()
    log.append((b"k9", b"new"))
    log.roll()
    size_bytes = sum(one.size_bytes for one in log.sealed)
    dirty_bytes = log.sealed[-1].size_bytes
    reads = [one for one in log.compact() if isinstance(one, Read)]
    assert reads[0] == Read(dirty_bytes, 0)
    assert sum(one.read_bytes for one in reads[1:]) == size_bytes


def test_segments_are_replaced_one_after_the_other() -> None:
    """What is done remains if the process is killed; the next run continues with the rest."""
    log, expected = _log(keys=30, batches=120), _log(keys=30, batches=120)
    replaced = len([one for one in expected.compact() if isinstance(one, Replacement)])
    assert replaced > 3
    for _ in range(replaced):
        steps = clean(log.files, log.request())
        new = next((one for one in steps if isinstance(one, Replacement)), None)
        if new is not None:
            log.replace(new)
        steps.close()
    log.compact()
    assert log.records() == expected.records()


# -- a full map -----------------------------------------------------------------------------------


@pytest.mark.parametrize("entries", [8, 13, 20, 43])
def test_keys_without_room_wait_for_the_next_run(entries: int) -> None:
    log, whole = _log(keys=60, batches=150), _log(keys=60, batches=150)
    whole.compact()
    before, last_values = log.records(), _last_values(log)
    ends = [0]
    while ends[-1] < log.end_offset:
        reports = log.compact(max_map_bytes=entries * ENTRY_BYTES)
        last = reports[-1]
        assert isinstance(last, Cleaned)
        assert ends[-1] < last.end_offset
        assert 0 < last.map_utilization <= 1
        ends.append(last.end_offset)
        assert _last_values(log) == last_values
        assert set(log.records()) <= set(before)
        # Below the end, each key occurs once, and not again unless after the end.
        below = [one.key for one in log.records() if one.offset < last.end_offset]
        assert len(below) == len(set(below))
    assert len(ends) > 3
    assert log.records() == whole.records()


def test_segments_after_the_end_of_a_full_map_are_not_read() -> None:
    log = CompactedLog()
    for number in range(12):
        log.append((b"k%d" % number, bytes(SMALL_SEGMENTS * 3)))
        log.roll()
    path = segment_path(DIRECTORY, log.sealed[10].base_offset, LOG_SUFFIX)
    log.files.unlink(path)
    reports = log.compact(max_map_bytes=10 * ENTRY_BYTES)
    last = reports[-1]
    assert isinstance(last, Cleaned)
    assert last.end_offset == 9


def test_batch_with_more_keys_than_the_map_has_room_for_is_reported() -> None:
    log = CompactedLog()
    log.append(*[(b"k%d" % number, b"v") for number in range(50)])
    log.roll()
    before = log.contents()
    with pytest.raises(CannotClean, match=r"offset 0 has more keys .*buffer\.size=240.*increase"):
        log.compact(max_map_bytes=10 * ENTRY_BYTES)
    assert log.contents() == before


def test_full_map_ends_after_keyless_batches_before_it() -> None:
    """The run makes progress, because these batches need no room."""
    log = CompactedLog()
    log.append((None, b"v"))
    log.append(*[(b"k%d" % number, b"v") for number in range(50)])
    log.roll()
    reports = log.compact(max_map_bytes=10 * ENTRY_BYTES)
    assert reports[-1] == Cleaned(1, reports[-1].map_utilization, 1)  # type: ignore[union-attr]
    with pytest.raises(CannotClean, match="offset 1 has more keys"):
        log.compact(max_map_bytes=10 * ENTRY_BYTES)


# -- leftovers ------------------------------------------------------------------------------------


def test_files_of_a_killed_run_are_replaced() -> None:
    log, other = _log(keys=30, batches=100), _log(keys=30, batches=100)
    other.compact()
    for base_offset in (one.base_offset for one in log.sealed):
        for path in unfinished_paths(DIRECTORY, base_offset):
            file = log.files.open_append(path)
            file.append(b"\x5a" * 700)
            file.close()
    steps = clean(log.files, log.request())
    reports = list(steps)
    for report in reports:
        if isinstance(report, Replacement):
            for base_offset in report.sources[1:]:
                for path in unfinished_paths(DIRECTORY, base_offset):
                    log.files.unlink(path)  # The broker removes those that no run replaces.
            log.replace(report)
    assert log.batches() == other.batches()
    assert log.aborted(log.sealed) == []


def test_new_run_continues_after_a_kill_at_any_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaning, "SLICE_BYTES", 300)
    expected = _log(keys=30, batches=60)
    count = len(expected.compact())
    for killed_after in range(1, count):
        log = _log(keys=30, batches=60)
        steps = clean(log.files, log.request())
        for _ in range(killed_after):
            next(steps)
        log.files = log.files.kill()
        with suppress(SimCrash):
            steps.close()
        log.compact()
        assert log.records() == expected.records()


def test_stopped_run_removes_the_files_of_its_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaning, "SLICE_BYTES", 300)
    log = _log(keys=30, batches=60)
    before = log.contents()
    steps = clean(log.files, log.request())
    while not any(name.endswith(".cleaned") for name in log.contents()):
        next(steps)
    steps.close()
    assert log.contents() == before
