"""plog/spark/jobs/warehouse/merge_planning.py: which hours are merged."""

from __future__ import annotations

from plog.spark.jobs.warehouse.merge_planning import (
    MergeLimits,
    MergePlan,
    is_closed,
    merge_groups,
    plan_merges,
)
from plog.spark.jobs.warehouse.warehouse_state import BatchManifest

LIMITS = MergeLimits(close_delay_s=60, max_files=3)
NOW_MS = 3 * 3_600_000
OLD, OPEN = "t/date=1970-01-01/hour=01", "t/date=1970-01-01/hour=02"


def manifest(batch: int, *folders: str) -> BatchManifest:
    files = tuple(f"{folder}/part-q-{batch}.parquet" for folder in folders)
    return BatchManifest(batch_id=batch, files=files)


def plan(*manifests: BatchManifest, files: int = 2, is_end: bool = False) -> MergePlan:
    counts = dict.fromkeys((OLD, OPEN), files)
    return plan_merges(manifests, counts, LIMITS, NOW_MS, is_end=is_end)


def test_closed_hours_are_merged_once_the_newest_batch_leaves_them_alone() -> None:
    first, second = manifest(0, OLD), manifest(1, OLD, OPEN)
    assert plan(first) == MergePlan(hours=(), settled=())
    assert plan(first, second) == MergePlan(hours=(), settled=())
    assert plan(first, second, manifest(2, OPEN)).hours == (OLD,)
    # With late records in each batch, an hour would otherwise never be merged.
    assert plan(first, second, files=4).hours == (OLD,)
    assert plan(first, second, is_end=True) == MergePlan(hours=(OLD,), settled=(first,))


def test_manifest_is_settled_when_all_its_hours_are() -> None:
    late = manifest(3, OLD)
    made = plan(manifest(0, OPEN), late, manifest(4, OPEN))
    assert made == MergePlan(hours=(OLD,), settled=(late,))


def test_dead_letters_are_not_merged() -> None:
    made = plan(manifest(0, "_dead_letters/t"), is_end=True)
    assert made.hours == ()
    assert len(made.settled) == 1
    hour = "_dead_letters/t/date=1970-01-01/hour=01"
    assert plan(manifest(0, hour), is_end=True).hours == ()


def test_hour_after_the_year_9999_is_never_closed() -> None:
    assert not is_closed("t/date=+10000-01-01/hour=00", 0, 1 << 60)


def test_files_of_the_target_size_stay() -> None:
    assert merge_groups({"a": 10, "b": 11}, 10) == []
    assert merge_groups({"a": 1}, 10) == []
    assert merge_groups({"a": 9, "b": 9, "c": 9, "d": 9}, 10) == [["a", "b"], ["c", "d"]]
