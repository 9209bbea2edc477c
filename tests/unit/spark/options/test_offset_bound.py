"""An OffsetBound for single partitions must name exactly those of the query."""

from __future__ import annotations

import pytest

from plog.settings import ConfigError
from plog.spark.options.offset_bound import EARLIEST, OffsetBound
from plog.types import TopicPartition

A, B, C = (TopicPartition("t", number) for number in range(3))


def test_same_value_applies_to_all_partitions() -> None:
    bound = OffsetBound(option="startingOffsets", value=EARLIEST)
    assert bound.by_partition([A, B]) == {A: -2, B: -2}


def test_values_by_partition_are_returned_in_the_order_of_the_query() -> None:
    bound = OffsetBound(option="startingOffsets", value={B: 5, A: 7})
    assert list(bound.by_partition([A, B]).items()) == [(A, 7), (B, 5)]


def test_missing_partition_is_an_error() -> None:
    bound = OffsetBound(option="startingOffsets", value={A: 5})
    with pytest.raises(ConfigError, match=r"startingOffsets lacks t-1, t-2; .*-2 means"):
        bound.by_partition([A, B, C])
    bound = OffsetBound(option="startingOffsetsByTimestamp", value={A: 5}, is_time=True)
    with pytest.raises(ConfigError, match=r"lacks t-1; set every partition of the query$"):
        bound.by_partition([A, B])


def test_partition_outside_the_query_is_an_error() -> None:
    bound = OffsetBound(option="endingOffsets", value={A: 5, C: 6})
    with pytest.raises(ConfigError, match="endingOffsets contains t-2, which the query does not"):
        bound.by_partition([A])


def test_long_lists_of_partitions_are_shortened() -> None:
    bound = OffsetBound(option="endingOffsets", value={})
    many = [TopicPartition("t", number) for number in range(8)]
    with pytest.raises(ConfigError, match="t-0, t-1, t-2, t-3, t-4 and 3 more;"):
        bound.by_partition(many)
