"""The part of a log that can be compacted: where it begins and ends, and its dirty share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from plogd.log.compaction.cleanable import Cleanable, cleanable_part, oldest_timestamp
from plogd.log.log import Log
from tests.helpers.log.compaction_site import COMPACT, end_transaction, put
from tests.helpers.log.log_site import LogSite, base_offsets
from tests.helpers.sim.sim_time import START_MS

BASES = [0, 6, 12, 18]


def _new_site(count: int = 20, **config: Any) -> tuple[LogSite, Log]:
    """Return a log with six records in each segment, each a millisecond later."""
    site = LogSite().start()
    log = site.create("t-0", replace(COMPACT, segment_bytes=500, **config))
    for number in range(count):
        put(site, log, b"k%02d" % number, b"value")
    site.settle()
    return site, log


def _part(log: Log, checkpointed: int | None = None, *, now_ms: int = START_MS) -> Cleanable:
    return cleanable_part(log, checkpointed_offset=checkpointed, now_ms=now_ms)


def _bases(part: Cleanable) -> list[int]:
    return [segment.base_offset for segment in part.segments]


def test_all_sealed_segments_are_cleanable() -> None:
    _, log = _new_site()
    assert base_offsets(log) == BASES
    part = _part(log)
    assert _bases(part) == BASES[:-1]
    assert (part.first_dirty_offset, part.end_offset) == (0, 18)
    assert (part.clean_bytes, part.dirty_ratio) == (0, 1.0)
    assert part.dirty_bytes == sum(segment.size_bytes for segment in part.segments)


@pytest.mark.parametrize(
    ("checkpointed", "clean"), [(0, 0), (5, 0), (6, 1), (11, 1), (12, 2), (17, 2)]
)
def test_segments_below_the_checkpoint_are_clean(checkpointed: int, clean: int) -> None:
    _, log = _new_site()
    part = _part(log, checkpointed)
    assert part.first_dirty_offset == checkpointed
    assert part.clean_bytes == sum(one.size_bytes for one in list(log.segments)[:clean])
    assert [one.base_offset for one in part.dirty_segments] == BASES[clean:-1]
    assert part.dirty_ratio == pytest.approx(1 - clean / 3, abs=0.01)


@pytest.mark.parametrize("checkpointed", [18, 19, 20])
def test_compacted_log_has_no_cleanable_part(checkpointed: int) -> None:
    _, log = _new_site()
    part = _part(log, checkpointed)
    assert (_bases(part), part.dirty_ratio) == ([], 0.0)


@pytest.mark.parametrize("checkpointed", [21, 1000])
def test_checkpoint_above_the_end_of_the_log_is_ignored(checkpointed: int) -> None:
    _, log = _new_site()
    assert _part(log, checkpointed).first_dirty_offset == 0


def test_checkpoint_below_the_first_segment_is_ignored() -> None:
    _, log = _new_site()
    log.delete_records_before(7)
    assert _part(log, 3).first_dirty_offset == 6


def test_records_below_the_log_start_are_dirty_until_their_segment_is_deleted() -> None:
    """A crash may move the log start back."""
    _, log = _new_site()
    log.delete_records_before(9)
    part = _part(log)
    assert (part.first_dirty_offset, _bases(part)) == (6, [6, 12])


@pytest.mark.parametrize(("high_watermark", "end"), [(18, 18), (17, 12), (12, 12), (11, 6), (5, 0)])
def test_part_ends_at_the_high_watermark(high_watermark: int, end: int) -> None:
    _, log = _new_site()
    log.high_watermark = high_watermark
    part = _part(log)
    assert part.end_offset == end
    assert _bases(part) == [base for base in BASES if base < end]


def test_part_ends_at_the_first_open_transaction() -> None:
    site, log = _new_site(10)
    producer = dict(producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    put(site, log, b"k", b"value", **producer)
    for number in range(20):
        put(site, log, b"k%02d" % number, b"value")
    site.settle()
    assert _part(log).end_offset == 6
    end_transaction(site, log, 7, commit=True)
    site.settle()
    assert _part(log).end_offset == log.segments.active.base_offset


def test_part_ends_before_the_first_segment_that_is_not_sealed() -> None:
    site, log = _new_site(12)
    for number in range(8):
        put(site, log, b"k%02d" % number, b"value")
    log.high_watermark = log.log_end_offset
    assert log.segments.active.base_offset == 18
    assert _part(log).end_offset == log.unsynced.first_unsealed_offset < 18
    site.settle()
    assert _part(log).end_offset == 18


@pytest.mark.parametrize(
    ("age_ms", "end"), [(1000, 0), (1005, 6), (1010, 6), (1011, 12), (1017, 18)]
)
def test_part_ends_before_young_records(age_ms: int, end: int) -> None:
    _, log = _new_site(min_compaction_lag_ms=1000)
    assert _part(log, now_ms=START_MS + age_ms).end_offset == end


def test_clean_segments_are_included_whatever_their_age() -> None:
    _, log = _new_site(min_compaction_lag_ms=1000)
    part = _part(log, 6, now_ms=START_MS + 1011)
    assert (_bases(part), part.end_offset) == ([0, 6], 12)


def test_empty_log_has_no_cleanable_part() -> None:
    _, log = _new_site(0)
    assert _bases(_part(log)) == []


def test_oldest_timestamp_is_that_of_the_first_batches() -> None:
    _, log = _new_site()
    part = _part(log, 6)
    assert oldest_timestamp(part.dirty_segments) == START_MS + 6
    assert oldest_timestamp(part.segments) == START_MS
    assert oldest_timestamp([]) is None
