"""Rows in Parquet files, for tests without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from plog.spark.jobs.warehouse.table_layout import is_data

# Without pyarrow, pytest must still be able to collect this module for its doctests.
pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

HOUR = "t/date=2026-01-01/hour=12"


def write_rows(path: Path, offsets: Sequence[int], **columns: Any) -> None:
    """Write a file with a row for each offset."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"offset": pa.array(offsets, pa.int64()), **columns}), path)


def offsets_in(root: Path) -> list[int]:
    """Return the sorted offsets that a reader of a topic's folder finds."""
    found: list[int] = []
    for path in root.rglob("*.parquet"):
        parts = path.relative_to(root).parts
        if is_data(path.name) and not any(part.startswith((".", "_")) for part in parts):
            found += pq.read_table(path, partitioning=None).column("offset").to_pylist()
    return sorted(found)
