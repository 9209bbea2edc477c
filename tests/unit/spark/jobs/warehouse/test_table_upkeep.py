"""plog/spark/jobs/warehouse/table_upkeep.py: merges, and rewrites of wider columns."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa

from plog.spark.jobs.table_files import TableFiles
from plog.spark.jobs.warehouse.merge_planning import MergeLimits
from plog.spark.jobs.warehouse.parquet_merge import column_types
from plog.spark.jobs.warehouse.table_columns import Column, TableColumns, read_columns
from plog.spark.jobs.warehouse.table_upkeep import TableUpkeep
from plog.spark.jobs.warehouse.warehouse_folder import WarehouseFolder
from tests.unit.spark.jobs.faulty_files import FaultyFiles, Killed
from tests.unit.spark.jobs.warehouse.table_contents import HOUR, offsets_in, write_rows

NOW_MS = 1_800_000_000_000
WIDE = TableColumns(columns=(Column(name="id", type="double", field="id"),), rewriting=True)


def upkeep(root: Path, files: TableFiles | None = None) -> TableUpkeep:
    folder = WarehouseFolder.opened(root, "q", files or FaultyFiles())
    return TableUpkeep(folder, MergeLimits(), lambda _: None)


def write_batches(root: Path, count: int, first: int = 0) -> None:
    folder = upkeep(root).folder
    for batch in range(first, first + count):
        folder.begin(batch)
        path = folder.layout.staging / HOUR / "a.parquet"
        write_rows(path, [batch], id=pa.array([batch], pa.int64()))
        folder.publish(batch)


def names(root: Path) -> list[str]:
    return sorted(path.name for path in (root / HOUR).iterdir())


def test_committed_batches_are_merged_and_late_ones_again(tmp_path: Path) -> None:
    write_batches(tmp_path, 4)
    upkeep(tmp_path).merge_closed(NOW_MS, is_end=True)
    # The last batch may be repeated, so its file stays.
    merged, last = names(tmp_path)
    assert (merged[:7], last) == ("merged-", "part-q-0000000003-000.parquet")
    assert [path.name for path in (tmp_path / ".plog/batches").iterdir()] == ["3.json"]
    write_batches(tmp_path, 1, first=4)
    made = upkeep(tmp_path)
    made.folder.commit(4)
    made.merge_closed(NOW_MS, is_end=True)
    [name] = names(tmp_path)
    assert name != merged
    assert offsets_in(tmp_path / "t") == list(range(5))
    assert list((tmp_path / ".plog/batches").iterdir()) == []


def test_records_are_there_once_after_a_merge_is_killed_at_any_step(tmp_path: Path) -> None:
    step = 0
    while True:
        root = tmp_path / str(step)
        write_batches(root, 4)
        files = FaultyFiles(fail_at=step)
        try:
            upkeep(root, files).merge_closed(NOW_MS, is_end=True)
        except Killed:
            assert offsets_in(root / "t") == list(range(4))
        # Spark repeats batch 3.
        write_batches(root, 2, first=3)
        upkeep(root).merge_closed(NOW_MS, is_end=True)
        assert offsets_in(root / "t") == list(range(5))
        assert len(names(root)) == 2
        if not files.has_failed:
            break
        step += 1
    assert step > 8


def test_widened_column_is_rewritten_in_all_files_after_a_kill_at_any_step(tmp_path: Path) -> None:
    step = 0
    while True:
        root = tmp_path / str(step)
        write_batches(root, 3)
        files = FaultyFiles(fail_at=step)
        try:
            done = upkeep(root, files).rewrite_widened("t", WIDE)
            assert not done.rewriting
        except Killed:
            assert offsets_in(root / "t") == list(range(3))
            upkeep(root).rewrite_widened("t", WIDE)
        assert offsets_in(root / "t") == list(range(3))
        types = {column_types(root / HOUR / name)["id"] for name in names(root)}
        assert types == {pa.float64()}
        path = upkeep(root).folder.layout.columns_of("t")
        assert read_columns(TableFiles(), path) == TableColumns(columns=WIDE.columns)
        if not files.has_failed:
            break
        step += 1
    assert step > 8
