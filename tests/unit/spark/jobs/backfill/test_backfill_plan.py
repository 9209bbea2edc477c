"""plog/spark/jobs/backfill/backfill_plan.py: slices cover the range, and the stream follows."""

from __future__ import annotations

from pathlib import Path

import pytest

from plog.settings import ConfigError
from plog.spark.jobs.backfill.backfill_plan import (
    BackfillPlan,
    read_plan,
    resolve_plan,
    write_plan,
)
from plog.spark.jobs.table_files import TableFiles
from plog.types import TopicPartition
from tests.unit.spark.scripted_lookup import ScriptedLookup

P0, P1, P2 = (TopicPartition("t", number) for number in range(3))


def plan(start: dict[TopicPartition, int], end: dict[TopicPartition, int], size: int) -> list[int]:
    """Return the offsets of partition 0 in all slices."""
    made = BackfillPlan(id="b", start=start, end=end, slice_size=size)
    found: list[int] = []
    for number in range(made.slice_count):
        starts, ends = made.slice(number)
        assert sum(ends[one] - starts[one] for one in starts) <= max(size, len(start))
        found += range(starts[P0], ends[P0])
    return found


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_slices_contain_each_offset_once(size: int) -> None:
    assert plan({P0: 3, P1: 0}, {P0: 10, P1: 2}, size) == list(range(3, 10))


def test_empty_range_has_no_slices() -> None:
    assert plan({P0: 3}, {P0: 3}, 5) == []
    assert plan({}, {}, 5) == []


def test_stream_starts_at_the_end_and_new_partitions_at_their_start() -> None:
    made = BackfillPlan(id="b", start={P0: 0}, end={P0: 5}, slice_size=1)
    assert made.stream_start({P0: None, P1: None}) == {P0: 5, P1: -2}


def test_plan_is_stored(tmp_path: Path) -> None:
    path = tmp_path / "c" / "backfill.json"
    assert read_plan(TableFiles(), path) is None
    made = BackfillPlan(id="b", start={P0: 0, P1: 1}, end={P0: 5, P1: 1}, slice_size=3)
    write_plan(TableFiles(), path, made)
    assert read_plan(TableFiles(), path) == made
    path.write_text('{"id": 1}')
    with pytest.raises(ConfigError, match="cannot read"):
        read_plan(TableFiles(), path)


@pytest.mark.parametrize(
    ("from_ms", "to_ms", "start", "end"),
    [
        (None, None, [10, 0], [20, 5]),
        (12_000, 15_000, [12, 5], [15, 5]),
        (3_000, 4_000, [10, 3], [10, 4]),
        (99_000, None, [20, 5], [20, 5]),
        (15_000, 12_000, [15, 5], [15, 5]),
    ],
)
def test_times_become_offsets_within_the_log(
    from_ms: int | None, to_ms: int | None, start: list[int], end: list[int]
) -> None:
    lookup = ScriptedLookup()
    made = resolve_plan(lookup, lookup.logs, from_ms=from_ms, to_ms=to_ms, slice_size=1)
    assert list(made.start.values()) == start
    assert list(made.end.values()) == end
