"""The order of a log's segments: lookups by offset, rolls, removal of the oldest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plogd.log.segment.log_segment import LogSegment
from plogd.log.segment.segments import Segments
from tests.helpers.log.log_data import SMALL
from tests.helpers.sim.sim_files import SimFiles


def _segments(*base_offsets: int) -> Segments:
    files = SimFiles(["/log"])
    return Segments(LogSegment.create(files, "/log", base, SMALL) for base in base_offsets)


def _bases(segments: Segments) -> list[int]:
    return [segment.base_offset for segment in segments]


def test_segments_are_kept_by_base_offset() -> None:
    segments = _segments(20, 0, 10)
    assert _bases(segments) == [0, 10, 20]
    assert (segments.first.base_offset, segments.active.base_offset) == (0, 20)
    assert len(segments) == 3


def test_log_without_segments_fails_an_assertion() -> None:
    with pytest.raises(AssertionError, match="active segment"):
        _segments()


def test_new_segment_becomes_the_active_one() -> None:
    segments, [new] = _segments(0, 10), _segments(25)
    segments.add(new)
    assert segments.active is new
    assert _bases(segments) == [0, 10, 25]


@pytest.mark.parametrize("base_offset", [0, 9, 10])
def test_new_segment_must_begin_after_the_active_one(base_offset: int) -> None:
    segments, [new] = _segments(0, 10), _segments(base_offset)
    with pytest.raises(AssertionError):
        segments.add(new)


def test_oldest_segments_are_removed_but_never_the_active_one() -> None:
    segments = _segments(0, 10, 20)
    removed = segments.remove_first(2)
    assert [segment.base_offset for segment in removed] == [0, 10]
    assert _bases(segments) == [20]
    with pytest.raises(AssertionError):
        segments.remove_first(1)


def test_end_offset_is_the_next_base_or_the_logs_end() -> None:
    segments = _segments(0, 10, 20)
    assert [segments.end_offset_of(segment, 27) for segment in segments] == [10, 20, 27]


@given(bases=st.sets(st.integers(0, 30), min_size=1, max_size=6), offset=st.integers(0, 40))
def test_iteration_begins_at_the_segment_that_may_hold_the_offset(
    bases: set[int], offset: int
) -> None:
    segments = _segments(*bases)
    found = [segment.base_offset for segment in segments.starting_at(offset)]
    floor = max((base for base in bases if base <= offset), default=min(bases))
    assert found == [base for base in sorted(bases) if base >= floor]
