"""plog/spark/jobs/recommend/counts_folder.py: each batch is counted once."""

from __future__ import annotations

from pathlib import Path

import pytest

from plog.settings import ConfigError
from plog.spark.jobs.recommend.counts_folder import CountsFolder
from plog.spark.jobs.table_files import TableFiles
from tests.unit.spark.jobs.faulty_files import FaultyFiles, Killed


def opened(root: Path, files: TableFiles | None = None, query: str = "q") -> CountsFolder:
    return CountsFolder.opened(root, query, files or FaultyFiles())


def write_batch(folder: CountsFolder, batch_id: int) -> None:
    """Write a batch as Spark does; the count of a batch is a power of two."""
    before = folder.begin(batch_id)
    count = (int((before / "items" / "part").read_text()) if before else 0) + 2**batch_id
    for part in (folder.staged_counts / "items", folder.staged_similar):
        part.mkdir(parents=True)
        (part / "part").write_text(str(count))
    folder.publish(batch_id)


def killed(root: Path, batch_id: int, step: int, *, can_exchange: bool) -> bool:
    """Write a batch until its driver is killed; return False if there is no such step."""
    files = FaultyFiles(fail_at=step, can_exchange=can_exchange)
    try:
        write_batch(opened(root, files), batch_id)
    except Killed:
        return True
    return False


def versions(root: Path) -> list[str]:
    return sorted(path.name for path in (root / ".plog/counts").iterdir())


@pytest.mark.parametrize("can_exchange", [True, False])
def test_batches_are_counted_once_after_kills_at_any_step(
    tmp_path: Path, can_exchange: bool
) -> None:
    """Each batch is killed at a step, its repetition at a later one, and a third one completes."""
    step, kills = 0, True
    while kills:
        root = tmp_path / str(step)
        write_batch(opened(root), 0)
        # Batch 2 had no baskets.
        for batch_id in (1, 3):
            kills = killed(root, batch_id, step, can_exchange=can_exchange)
            killed(root, batch_id, step + 2, can_exchange=can_exchange)
            write_batch(opened(root), batch_id)
            # Spark repeats a batch that was complete, but not committed.
            write_batch(opened(root), batch_id)
        assert (root / "similar/part").read_text() == str(1 + 2 + 8)
        assert versions(root) == ["1", "3"]
        step += 1
    assert step > 8


def test_readers_always_find_a_complete_result(tmp_path: Path) -> None:
    step, kills = 0, True
    while kills:
        root = tmp_path / str(step)
        write_batch(opened(root), 0)
        kills = killed(root, 1, step, can_exchange=True)
        assert (root / "similar/part").read_text() in ("1", "3")
        step += 1


def test_range_leaves_no_counts(tmp_path: Path) -> None:
    for count in ("5", "7"):
        folder = opened(tmp_path, query="range")
        assert folder.begin(0) is None
        for part in (folder.staged_counts, folder.staged_similar):
            part.mkdir(parents=True)
            (part / "part").write_text(count)
        folder.publish(0, keep=False)
        assert (tmp_path / "similar/part").read_text() == count
        assert versions(tmp_path) == []


def test_folder_of_another_query_and_older_checkpoint_are_refused(tmp_path: Path) -> None:
    for batch_id in (3, 4):
        write_batch(opened(tmp_path), batch_id)
    with pytest.raises(ConfigError, match="the query q has written it, and this is the query r"):
        opened(tmp_path, query="r")
    with pytest.raises(ConfigError, match="it contains batch 4, so the checkpoint is older"):
        opened(tmp_path).begin(3)
    assert (tmp_path / "similar/part").read_text() == str(8 + 16)


def test_damaged_state_is_reported(tmp_path: Path) -> None:
    opened(tmp_path)
    (tmp_path / ".plog/state.json").write_text("[]")
    with pytest.raises(ConfigError, match="restore the folder of the table from a backup"):
        opened(tmp_path)
