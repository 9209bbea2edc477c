"""plog/spark/jobs/warehouse/warehouse_folder.py: each batch has its effect once."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from plog.settings import ConfigError
from plog.spark.jobs.table_files import TableFiles
from plog.spark.jobs.warehouse.warehouse_folder import WarehouseFolder
from tests.unit.spark.jobs.faulty_files import FaultyFiles, Killed
from tests.unit.spark.jobs.warehouse.table_contents import HOUR, offsets_in, write_rows


def opened(root: Path, files: TableFiles | None = None, query: str = "q") -> WarehouseFolder:
    return WarehouseFolder.opened(root, query, files or FaultyFiles())


def write_batch(folder: WarehouseFolder, batch_id: int) -> None:
    """Write a batch of three files; its offsets follow from its id."""
    folder.begin(batch_id)
    first = batch_id * 3
    for number, hour in enumerate((HOUR, HOUR, HOUR.replace("12", "13"))):
        # The tasks of Spark choose other names each time.
        write_rows(folder.layout.staging / hour / f"{number}.parquet", [first + number])
    folder.publish(batch_id)


def test_batches_are_published_under_names_of_query_and_batch(tmp_path: Path) -> None:
    folder = opened(tmp_path)
    write_batch(folder, 0)
    write_batch(folder, 1)
    assert offsets_in(tmp_path / "t") == list(range(6))
    names = sorted(path.name for path in (tmp_path / HOUR).iterdir())
    assert names == [f"part-q-000000000{batch}-00{number}.parquet" for batch, number in PAIRS]


PAIRS = [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_repeated_batch_replaces_its_files(tmp_path: Path) -> None:
    for _ in range(3):
        folder = opened(tmp_path)
        write_batch(folder, 0)
        assert folder.committed == -1
    assert offsets_in(tmp_path / "t") == [0, 1, 2]


def test_records_are_there_once_after_kills_at_any_step(tmp_path: Path) -> None:
    """The batch is killed at a step, its repetition at another one, and a third one completes."""
    first = 0
    while True:
        second = 0
        while True:
            root = tmp_path / f"{first}-{second}"
            write_batch(opened(root), 0)
            kills = [killed(root, first), killed(root, second)]
            write_batch(opened(root), 1)
            write_batch(opened(root), 2)
            assert offsets_in(root / "t") == list(range(9))
            if not kills[1]:
                break
            second += 2
        if not kills[0]:
            break
        first += 1
    assert first > 8


def killed(root: Path, step: int) -> bool:
    """Write batch 1, and return whether it was killed."""
    try:
        write_batch(opened(root, FaultyFiles(fail_at=step)), 1)
    except Killed:
        assert len(offsets_in(root / "t")) == len(set(offsets_in(root / "t")))
        return True
    return False


def test_batch_of_an_older_checkpoint_is_refused(tmp_path: Path) -> None:
    folder = opened(tmp_path)
    for batch in range(3):
        write_batch(folder, batch)
    with pytest.raises(ConfigError, match="it contains batch 1, so the checkpoint is older"):
        folder.begin(1)


def test_other_query_is_refused(tmp_path: Path) -> None:
    opened(tmp_path)
    with pytest.raises(ConfigError, match="the query q has written it, and this is the query r"):
        opened(tmp_path, query="r")


def test_empty_batch_publishes_nothing(tmp_path: Path) -> None:
    folder = opened(tmp_path)
    folder.begin(0)
    assert folder.publish(0).files == ()
    assert list(folder.layout.batches.iterdir()) == []


def test_file_without_rows_is_not_published(tmp_path: Path) -> None:
    folder = opened(tmp_path)
    folder.begin(0)
    write_rows(folder.layout.staging / HOUR / "a.parquet", [])
    write_rows(folder.layout.staging / HOUR / "b.parquet", [1])
    skipped = frozenset({folder.layout.staging / HOUR / "a.parquet"})
    assert len(folder.publish(0, skipped).files) == 1


@pytest.mark.parametrize("name", ["state.json", "batches/3.json"])
def test_damaged_file_of_the_job_is_an_error(tmp_path: Path, name: str) -> None:
    folder = opened(tmp_path)
    (tmp_path / ".plog" / name).write_text("{}")
    with pytest.raises(ConfigError, match=r"cannot read .*: '\w+'; restore the folder"):
        opened(tmp_path).begin(0)
    assert folder.layout.root == tmp_path


def test_table_without_the_last_batches_of_the_checkpoint_is_refused(tmp_path: Path) -> None:
    folder = opened(tmp_path)
    write_batch(folder, 0)
    write_batch(folder, 1)
    with pytest.raises(ConfigError, match=r"contains batches up to 1, so the table is older"):
        folder.begin(3)
    folder.begin(2)
