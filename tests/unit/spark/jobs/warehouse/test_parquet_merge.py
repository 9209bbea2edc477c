"""plog/spark/jobs/warehouse/parquet_merge.py: rows, columns and types of merged files."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa
import pyarrow.parquet as pq

from plog.settings import ConfigError
from plog.spark.jobs.warehouse import parquet_merge
from plog.spark.jobs.warehouse.parquet_merge import _rows_at_once, merge_files
from tests.unit.spark.jobs.warehouse.table_contents import write_rows


def test_columns_are_united_and_values_widened(tmp_path: Path) -> None:
    one, two, out = (tmp_path / name for name in ("1.parquet", "2.parquet", "out.parquet"))
    write_rows(one, [0, 1], id=pa.array([1, (1 << 60) + 1], pa.int64()), old=["a", None])
    write_rows(two, [2], new=[{"x": [1, 2]}], id=[0.5])
    assert merge_files([one, two], out, {"id": pa.float64()}) == 3
    table = pq.read_table(out)
    assert table.column_names == ["offset", "id", "old", "new"]
    assert table.to_pydict() == {
        "offset": [0, 1, 2],
        "id": [1.0, float(1 << 60), 0.5],
        "old": ["a", None, None],
        "new": [None, None, {"x": [1, 2]}],
    }


def test_rows_are_collected_into_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [tmp_path / f"{number}.parquet" for number in range(10)]
    for number, path in enumerate(paths):
        write_rows(path, [number])
    merge_files(paths, tmp_path / "out.parquet", {})
    assert pq.read_metadata(tmp_path / "out.parquet").num_row_groups == 1
    monkeypatch.setattr(parquet_merge, "ROW_GROUP_BYTES", 16)
    merge_files(paths, tmp_path / "out.parquet", {})
    assert pq.read_metadata(tmp_path / "out.parquet").num_row_groups == 5


def test_unexpected_type_is_an_error(tmp_path: Path) -> None:
    write_rows(tmp_path / "1.parquet", [0], a=["x"])
    write_rows(tmp_path / "2.parquet", [1], a=[1])
    paths = [tmp_path / "1.parquet", tmp_path / "2.parquet"]
    with pytest.raises(ConfigError, match="the column a is string in one of them and int64"):
        merge_files(paths, tmp_path / "out.parquet", {})


def test_files_with_large_values_are_read_a_few_rows_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "large.parquet"
    pq.write_table(pa.table({"value": [b"x" * (1 << 20)] * 100}), path, use_dictionary=False)
    assert 50 < _rows_at_once(pq.read_metadata(path)) < 70
    pq.write_table(pa.table({"value": [1, 2]}), path)
    assert _rows_at_once(pq.read_metadata(path)) == 16_384
    pq.write_table(pa.table({"value": pa.array([], pa.int64())}), path)
    assert _rows_at_once(pq.read_metadata(path)) == 16_384
