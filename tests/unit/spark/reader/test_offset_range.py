"""OffsetRange splits into adjacent parts of nearly equal size."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from plog.spark.reader.offset_range import OffsetRange
from plog.types import TopicPartition

T0 = TopicPartition("t", 0)


def of(start: int, end: int) -> OffsetRange:
    return OffsetRange(partition=T0, start_offset=start, end_offset=end)


def test_range_that_ends_before_its_start_is_empty() -> None:
    assert (of(5, 5).size, of(5, 3).size, of(3, 5).size) == (0, 0, 2)


@given(st.integers(0, 2**62), st.integers(1, 10_000), st.integers(1, 50))
def test_parts_cover_the_range_without_gaps(start: int, size: int, parts: int) -> None:
    made = of(start, start + size).split(parts)
    assert [one.start_offset for one in made[1:]] == [one.end_offset for one in made[:-1]]
    assert (made[0].start_offset, made[-1].end_offset) == (start, start + size)
    assert max(one.size for one in made) - min(one.size for one in made) <= 1
