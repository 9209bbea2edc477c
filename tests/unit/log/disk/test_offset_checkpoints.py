"""The three checkpoints of a log directory: their offsets, and when they are written."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from plog.types import TopicPartition
from plogd.log import file_names
from plogd.log.disk.checkpoint_files import read_offsets
from tests.helpers.log.log_site import CONFIG, LogSite, spied

T0, U0 = TopicPartition("t", 0), TopicPartition("u", 0)


def _on_disk(site: LogSite, name: str, log_dir: str = "/a") -> dict[TopicPartition, int]:
    return read_offsets(site.files, f"{log_dir}/{name}")


def _site() -> LogSite:
    """Two logs: `t-0` with 10 durable batches and two appended (and a roll) since, `u-0` empty."""
    site = LogSite().start()
    log = site.create("t-0")
    site.create("u-0")
    site.fill(log, 10)
    site.settle()
    site.fill(log, 2)
    return site


def test_recovery_point_is_where_the_oldest_unsealed_segment_begins() -> None:
    """R12: not the durable end, because the active segment's indexes are never synced."""
    site = _site()
    site.settle(site.manager.write_recovery_points())
    assert _on_disk(site, file_names.RECOVERY_POINT_CHECKPOINT) == {T0: 5, U0: 0}


def test_high_watermark_is_written_only_as_far_as_it_is_durable() -> None:
    """R12: with a relaxed flush.messages, it is ahead of the disk."""
    site = _site()
    log = site.log("t-0")
    log.config = replace(CONFIG, flush_messages=1000)
    site.append(log)
    assert (log.high_watermark, log.durable_end_offset) == (13, 10)
    later = site.manager.write_high_watermarks()
    for _ in ("the seal of the last roll", "the checkpoint"):
        site.ports.jobs.run_one("dir:/a")
    assert later.done
    assert _on_disk(site, file_names.HIGH_WATERMARK_CHECKPOINT) == {T0: 10, U0: 0}


def test_checkpoint_is_written_only_when_an_offset_has_changed() -> None:
    site = _site()
    site.settle()
    paths = spied(site.files, "rename")
    for _ in range(3):
        site.settle(site.manager.write_high_watermarks())
    written = f"/a/{file_names.HIGH_WATERMARK_CHECKPOINT}.tmp"
    assert paths() == [written]
    site.append(site.log("u-0"))
    site.settle(site.manager.write_high_watermarks())
    site.settle(site.manager.write_high_watermarks())
    assert paths() == [written] * 2
    assert _on_disk(site, file_names.HIGH_WATERMARK_CHECKPOINT)[U0] == 1


def test_checkpoint_of_an_earlier_process_is_written_once() -> None:
    """So a damaged or missing checkpoint is restored by the first pass."""
    site = _site()
    site.settle(site.manager.write_high_watermarks())
    site = site.kill()
    paths = spied(site.files, "rename")
    site.settle(site.manager.write_high_watermarks())
    site.settle(site.manager.write_high_watermarks())
    assert len(paths()) == 1


def test_failed_checkpoint_write_is_retried() -> None:
    site = _site()
    site.files.fail_when(lambda operation: operation.name == "create", errno.ENOSPC)
    site.settle(site.manager.write_high_watermarks())
    site.files.fail_no_more()
    site.settle(site.manager.write_high_watermarks())
    assert _on_disk(site, file_names.HIGH_WATERMARK_CHECKPOINT)[T0] == 12


def test_high_watermark_below_the_durable_end_is_written_unchanged() -> None:
    site = _site()
    site.log("t-0").high_watermark = 7
    site.settle(site.manager.write_high_watermarks())
    assert _on_disk(site, file_names.HIGH_WATERMARK_CHECKPOINT)[T0] == 7


def test_log_starts_are_written() -> None:
    site = _site()
    site.log("t-0").log_start_offset = 3
    site.settle(site.manager.write_log_starts())
    assert _on_disk(site, file_names.LOG_START_OFFSET_CHECKPOINT) == {T0: 3, U0: 0}


def test_each_directory_has_its_own_checkpoints() -> None:
    site = LogSite(("/a", "/b")).start()
    site.create("t-0")
    site.create("u-0")
    site.settle(site.manager.write_recovery_points())
    assert _on_disk(site, file_names.RECOVERY_POINT_CHECKPOINT, "/a") == {T0: 0}
    assert _on_disk(site, file_names.RECOVERY_POINT_CHECKPOINT, "/b") == {U0: 0}


def test_deleted_log_is_not_in_the_next_checkpoint() -> None:
    site = _site()
    site.settle(site.manager.write_recovery_points())
    site.delete("t-0")
    site.settle(site.manager.write_recovery_points())
    assert _on_disk(site, file_names.RECOVERY_POINT_CHECKPOINT) == {U0: 0}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE])
def test_full_disk_keeps_the_old_checkpoint_and_the_directory_online(number: int) -> None:
    site = LogSite().start()
    log = site.create("t-0")
    site.settle(site.manager.write_recovery_points())
    site.fill(log, 10)
    site.settle()
    site.files.fail_when(lambda operation: operation.name in ("append", "create"), number)
    site.settle(site.manager.write_recovery_points())
    assert _on_disk(site, file_names.RECOVERY_POINT_CHECKPOINT) == {T0: 0}
    assert site.offline == []
    assert "cannot write recovery-point-offset-checkpoint in /a" in site.reports[-1]


def test_checkpoint_that_cannot_be_synced_takes_the_directory_offline() -> None:
    site = LogSite(("/a", "/b")).start()
    site.create("t-0")
    site.create("u-0")
    site.files.fail_when(lambda operation: operation.path.startswith("/a/recovery"), errno.EIO)
    site.settle(site.manager.write_recovery_points())
    assert site.offline == ["/a"]
    assert _on_disk(site, file_names.RECOVERY_POINT_CHECKPOINT, "/b") == {U0: 0}


def test_failed_directory_is_not_written() -> None:
    site = LogSite(("/a", "/b")).start()
    site.create("t-0")
    site.create("u-0")
    site.manager.storage_failed("/b", OSError(errno.EIO, "broken"))
    created = spied(site.files, "create")
    site.settle(site.manager.write_recovery_points())
    site.settle(site.manager.write_high_watermarks())
    assert created() == [
        "/a/recovery-point-offset-checkpoint.tmp",
        "/a/replication-offset-checkpoint.tmp",
    ]


def test_hanging_disk_does_not_delay_checkpoints_of_others() -> None:
    site = LogSite(("/a", "/b")).start()
    site.create("t-0")
    site.create("u-0")
    created = spied(site.files, "create")
    site.manager.write_recovery_points()
    site.ports.jobs.run_one("dir:/b")
    assert created() == ["/b/recovery-point-offset-checkpoint.tmp"]


def test_bug_affects_one_checkpoint_of_one_directory_until_the_next_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = LogSite(("/a", "/b")).start()
    site.create("t-0")
    site.create("u-0")
    created = spied(site.files, "create")

    def die(name: str, offsets: object) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(site.manager.dirs["/a"], "write_offsets", die)
    site.settle(site.manager.write_recovery_points())
    assert created() == ["/b/recovery-point-offset-checkpoint.tmp"]
    assert site.offline == []
    assert site.reports[-1] == (
        "checkpoint of recovery-point-offset-checkpoint in /a failed: ValueError('a bug'); "
        "it will be retried"
    )
    monkeypatch.undo()
    site.settle(site.manager.write_recovery_points())
    assert "/a/recovery-point-offset-checkpoint.tmp" in created()
