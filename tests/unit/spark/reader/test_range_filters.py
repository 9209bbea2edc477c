"""RangeFilters narrow offset ranges without excluding a matching record."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from plog.spark.reader.data_loss import LogBounds
from plog.spark.reader.offset_range import OffsetRange
from plog.spark.reader.range_filters import Condition, RangeFilters
from tests.unit.spark.scripted_lookup import A, B, ScriptedLookup

RANGES = [
    OffsetRange(partition=A, start_offset=0, end_offset=20),
    OffsetRange(partition=B, start_offset=5, end_offset=8),
]


def narrowed(
    *conditions: tuple[str, str, object], append_time: bool = False
) -> list[tuple[int, int, int]]:
    """Return partition, start and end of what is left; the records are a second apart."""
    logs = {A: LogBounds(0, 20), B: LogBounds(5, 8)}
    lookup = ScriptedLookup(logs, append_time=append_time)
    filters = RangeFilters.of(Condition(*condition) for condition in conditions)
    return [
        (one.partition.partition, one.start_offset, one.end_offset)
        for one in filters.narrow(RANGES, lookup)
        if one.size
    ]


TOKYO = timezone(timedelta(hours=9))


def at(seconds: float) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)


def test_query_without_conditions_reads_everything() -> None:
    assert narrowed() == [(0, 0, 20), (1, 5, 8)]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (("partition", "=", 1), [(1, 5, 8)]),
        (("partition", "in", (0, 7)), [(0, 0, 20)]),
        (("partition", ">", 0), [(0, 0, 20), (1, 5, 8)]),
        (("topic", "=", "t"), [(0, 0, 20), (1, 5, 8)]),
        (("topic", "=", "other"), []),
        (("offset", "=", 6), [(0, 6, 7), (1, 6, 7)]),
        (("offset", ">", 6), [(0, 7, 20), (1, 7, 8)]),
        (("offset", ">=", 6), [(0, 6, 20), (1, 6, 8)]),
        (("offset", "<", 6), [(0, 0, 6), (1, 5, 6)]),
        (("offset", "<=", 6), [(0, 0, 7), (1, 5, 7)]),
        (("offset", "in", (3, 9)), [(0, 3, 10), (1, 5, 8)]),
        (("offset", "in", ()), []),
        (("offset", "=", None), [(0, 0, 20), (1, 5, 8)]),
        (("value", "=", b"x"), [(0, 0, 20), (1, 5, 8)]),
    ],
)
def test_condition_on_a_position_is_exact(
    condition: tuple[str, str, object], expected: list[tuple[int, int, int]]
) -> None:
    assert narrowed(condition) == expected


def test_all_conditions_apply() -> None:
    found = narrowed(
        ("offset", ">", 2), ("offset", "<", 10), ("partition", "=", 0), ("offset", ">", 1)
    )
    assert found == [(0, 3, 10)]
    assert narrowed(("partition", "=", 0), ("partition", "=", 1)) == []


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (("timestamp", ">=", at(6)), [(0, 6, 20), (1, 6, 8)]),
        (("timestamp", ">=", at(5.9999999)), [(0, 6, 20), (1, 6, 8)]),
        (("timestamp", ">=", at(6.000001)), [(0, 7, 20), (1, 7, 8)]),
        (("timestamp", ">", at(6)), [(0, 7, 20), (1, 7, 8)]),
        (("timestamp", ">", at(99)), []),
        # Records without a timestamp are shown 1 ms before 1970, and lookups do not find them.
        (("timestamp", ">=", at(-5)), [(0, 0, 20), (1, 5, 8)]),
        (("timestamp", ">=", at(-0.001)), [(0, 0, 20), (1, 5, 8)]),
        (
            ("timestamp", ">=", at(6).astimezone(TOKYO)),
            [(0, 6, 20), (1, 6, 8)],
        ),
    ],
)
def test_start_of_the_time_is_exact(
    condition: tuple[str, str, object], expected: list[tuple[int, int, int]]
) -> None:
    assert narrowed(condition) == expected


def test_end_of_the_time_narrows_only_with_append_time() -> None:
    everything = [(0, 0, 20), (1, 5, 8)]
    assert narrowed(("timestamp", "<", at(6))) == everything
    assert narrowed(("timestamp", "<", at(6)), append_time=True) == [(0, 0, 6), (1, 5, 6)]
    assert narrowed(("timestamp", "<=", at(6)), append_time=True) == [(0, 0, 7), (1, 5, 7)]
    assert narrowed(("timestamp", "<", at(99)), append_time=True) == everything
    assert narrowed(("timestamp", "=", at(6))) == [(0, 6, 20), (1, 6, 8)]
    assert narrowed(("timestamp", "=", at(6)), append_time=True) == [(0, 6, 7), (1, 6, 7)]
