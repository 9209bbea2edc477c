"""The order of a log's segments: look-ups by offset, rolls, removal of the oldest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plogd.log.segment.log_segment import LogSegment
from plogd.log.segment.segments import Segments
from tests.helpers.log_data import SMALL
from tests.helpers.sim_files import SimFiles


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


def test_a_log_without_segments_is_our_bug() -> None:
    with pytest.raises(AssertionError, match="active segment"):
        _segments()


def test_a_new_segment_becomes_the_active_one() -> None:
    segments, [new] = _segments(0, 10), _segments(25)
    segments.add(new)
    assert segments.active is new
    assert _bases(segments) == [0, 10, 25]


@pytest.mark.parametrize("base_offset", [0, 9, 10])
def test_a_new_segment_begins_behind_the_active_one(base_offset: int) -> None:
    segments, [new] = _segments(0, 10), _segments(base_offset)
    with pytest.raises(AssertionError):
        segments.add(new)


def test_the_oldest_are_taken_out_and_the_active_one_stays() -> None:
    segments = _segments(0, 10, 20)
    removed = segments.remove_first(2)
    assert [segment.base_offset for segment in removed] == [0, 10]
    assert _bases(segments) == [20]
    with pytest.raises(AssertionError):
        segments.remove_first(1)


def test_an_end_offset_is_the_next_base_or_the_logs_end() -> None:
    segments = _segments(0, 10, 20)
    assert [segments.end_offset_of(segment, 27) for segment in segments] == [10, 20, 27]


@given(bases=st.sets(st.integers(0, 30), min_size=1, max_size=6), offset=st.integers(0, 40))
def test_a_walk_begins_where_the_offset_may_be(bases: set[int], offset: int) -> None:
    segments = _segments(*bases)
    found = [segment.base_offset for segment in segments.starting_at(offset)]
    floor = max((base for base in bases if base <= offset), default=min(bases))
    assert found == [base for base in sorted(bases) if base >= floor]
