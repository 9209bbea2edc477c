"""plog/spark/jobs/warehouse/hour_merge.py: readers never see a record twice, nor miss one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from plog.settings import ConfigError
from plog.spark.jobs.table_files import TableFiles
from plog.spark.jobs.warehouse.hour_merge import HourMerge
from plog.spark.jobs.warehouse.table_layout import TableLayout
from tests.unit.spark.jobs.faulty_files import FaultyFiles, Killed
from tests.unit.spark.jobs.warehouse.table_contents import HOUR, offsets_in, write_rows

GROUPS = [["a.parquet", "b.parquet"], ["c.parquet", "d.parquet"]]
ALL = list(range(6))


@dataclass
class Hour:
    """An hour with five files, of which one is large."""

    root: Path

    def __post_init__(self) -> None:
        (self.root / ".plog").mkdir(parents=True)
        for name, offsets in {"a": [0], "b": [1, 2], "c": [3], "d": [4], "large": [5]}.items():
            write_rows(self.path / f"{name}.parquet", offsets)

    @property
    def path(self) -> Path:
        return self.root / HOUR

    def merge(self, files: TableFiles) -> HourMerge:
        return HourMerge(TableLayout(self.root), files)

    def names(self) -> list[str]:
        return sorted(path.name for path in self.path.iterdir())


@pytest.fixture
def hour(tmp_path: Path) -> Hour:
    return Hour(tmp_path / "first")


def test_groups_of_files_become_one_file_each(hour: Hour) -> None:
    outputs = hour.merge(TableFiles()).run(hour.path, GROUPS)
    assert hour.names() == sorted(["large.parquet", *outputs])
    assert offsets_in(hour.root / "t") == ALL
    assert list((hour.root / ".plog").iterdir()) == []
    assert hour.merge(TableFiles()).run(hour.path, []) == []


@pytest.mark.parametrize("can_exchange", [True, False], ids=["exchange", "rename"])
def test_records_are_there_once_after_a_kill_at_any_step(
    tmp_path: Path, can_exchange: bool
) -> None:
    step = 0
    while True:
        hour = Hour(tmp_path / str(step))
        files = FaultyFiles(fail_at=step, can_exchange=can_exchange)
        try:
            hour.merge(files).run(hour.path, GROUPS)
        except Killed:
            seen = offsets_in(hour.root / "t")
            # Only without exchange may a reader miss the hour, until recovery.
            assert seen == ALL or (not can_exchange and seen == [])
            recover_with_kills(hour, can_exchange)
        assert offsets_in(hour.root / "t") == ALL
        assert list((hour.root / ".plog").iterdir()) == []
        if not files.has_failed:
            break
        step += 1
    assert step > 12


def recover_with_kills(hour: Hour, can_exchange: bool) -> None:
    """Kill the recovery at each of its steps, too."""
    step = 0
    while True:
        files = FaultyFiles(fail_at=step, can_exchange=can_exchange)
        try:
            hour.merge(files).recover()
            return
        except Killed:
            assert offsets_in(hour.root / "t") in (ALL, [])
        step += 1


def test_merge_that_fails_leaves_the_hour_unchanged(hour: Hour) -> None:
    before = hour.names()
    (hour.path / "b.parquet").write_bytes(b"damaged")
    with pytest.raises(Exception, match=r"(?i)parquet"):
        hour.merge(TableFiles()).run(hour.path, GROUPS)
    assert hour.names() == before
    hour.merge(TableFiles()).recover()
    assert hour.names() == before


def test_damaged_manifest_is_an_error(hour: Hour) -> None:
    (hour.root / ".plog/merge.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"cannot read .*merge.json: 'hour'; restore"):
        hour.merge(TableFiles()).recover()
