"""One log directory: its lock, identity, clean shutdown file and checkpoints."""

from __future__ import annotations

import errno
import posixpath
import random

import pytest

from plog.types import TopicPartition
from plogd.log import file_names
from plogd.log.disk.checkpoint_files import MetaProperties
from plogd.log.disk.log_dir import OFFSET_CHECKPOINTS, LogDir, LogDirUnusable
from tests.helpers.sim.sim_files import Operation, SimFiles

IDENTITY = MetaProperties(cluster_id="c" * 22, node_id=1, directory_id="d" * 22)
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def _log_dir(files: SimFiles, path: str = "/data") -> tuple[LogDir, list[str]]:
    reports: list[str] = []
    log_dir = LogDir(
        path, files, lambda message, **fields: reports.append(message.format(**fields))
    )
    return log_dir, reports


def _opened(files: SimFiles, path: str = "/data") -> LogDir:
    log_dir, _ = _log_dir(files, path)
    log_dir.open()
    return log_dir


def _taken_over(files: SimFiles) -> LogDir:
    log_dir = _opened(files)
    log_dir.take_over(IDENTITY)
    return log_dir


def test_new_directory_and_missing_parents_survive_a_power_loss() -> None:
    for seed in range(20):
        files = SimFiles(["/srv"])
        _opened(files, "/srv/plog/data")
        assert files.crash(random.Random(seed)).is_dir("/srv/plog/data")


def test_directory_of_a_failed_start_is_durable_once_a_broker_uses_it() -> None:
    for seed in range(20):
        files = SimFiles(["/srv"])
        files.fail_when(lambda operation: operation.name == "sync_dir", errno.EIO)
        with pytest.raises(OSError, match="Input/output"):
            _opened(files, "/srv/plog/data")
        files.fail_no_more()
        _opened(files, "/srv/plog/data")
        assert files.crash(random.Random(seed)).is_dir("/srv/plog/data")


def test_unused_directory_has_no_identity_and_no_clean_mark() -> None:
    log_dir = _taken_over(SimFiles())
    assert not log_dir.was_clean
    assert log_dir.recovery_points == log_dir.high_watermarks == log_dir.log_starts == {}


def test_only_one_broker_holds_a_directory() -> None:
    files = SimFiles()
    first, (second, _) = _opened(files), _log_dir(files)
    with pytest.raises(LogDirUnusable, match="/data: in use by another broker; stop that"):
        second.open()
    first.release()
    first.release()
    second.open()
    assert second.identity is None


def test_identity_is_written_once_and_read_again() -> None:
    files = SimFiles()
    _taken_over(files).release()
    log_dir = _opened(files)
    assert log_dir.identity == IDENTITY
    written: list[str] = []
    files.on_operation = lambda operation: written.append(operation.name)
    log_dir.take_over(IDENTITY)
    assert written == ["sync_dir"]


def test_older_identity_of_kafka_is_upgraded() -> None:
    files = SimFiles(["/data"])
    path = posixpath.join("/data", file_names.META_PROPERTIES)
    file = files.open_append(path)
    file.append(b"version=0\nbroker.id=1\ncluster.id=" + b"c" * 22 + b"\n")
    _taken_over(files)
    assert b"version=1\n" in files.read_file(path)


def test_damaged_identity_says_what_to_do() -> None:
    files = SimFiles()
    _taken_over(files).release()
    files.overwrite(f"/data/{file_names.META_PROPERTIES}", b"\0" * 40)
    log_dir, _ = _log_dir(files)
    with pytest.raises(LogDirUnusable, match=r"meta\.properties.*restore the file from another"):
        log_dir.open()


# -- the mark of a clean stop -----------------------------------------------------------------


def test_clean_stop_is_visible_to_the_next_start_only() -> None:
    files = SimFiles()
    _taken_over(files).close(clean=True)
    second = _taken_over(files)
    assert second.was_clean
    second.release()
    assert not _taken_over(files).was_clean


def test_unclean_stop_releases_the_directory() -> None:
    files = SimFiles()
    _taken_over(files).close(clean=False)
    assert not _taken_over(files).was_clean


def test_opening_the_directory_keeps_the_clean_mark() -> None:
    """A start that refuses the directory (wrong node.id) must not cause a full recovery."""
    files = SimFiles()
    _taken_over(files).close(clean=True)
    _opened(files).release()
    assert _taken_over(files).was_clean


def test_no_crash_after_the_take_over_is_taken_for_a_clean_stop() -> None:
    """KAFKA-10471."""
    for seed in range(20):
        files = SimFiles()
        _taken_over(files).close(clean=True)
        _taken_over(files)
        assert not _taken_over(files.crash(random.Random(seed))).was_clean


# -- checkpoints ------------------------------------------------------------------------------


def test_checkpoints_are_read_as_they_were_written() -> None:
    files = SimFiles()
    log_dir = _taken_over(files)
    for number, name in enumerate(OFFSET_CHECKPOINTS):
        log_dir.write_offsets(name, {T0: number, T1: 10 + number})
    log_dir.release()
    again = _opened(files)
    assert again.high_watermarks == log_dir.high_watermarks == {T0: 0, T1: 10}
    assert again.log_starts == {T0: 1, T1: 11}
    assert again.recovery_points == {T0: 2, T1: 12}
    assert again.cleaner_offsets == {T0: 3, T1: 13}


@pytest.mark.parametrize("damage", [b"", b"\0" * 30, b"0\n5\nt 0 1\n", b"9\n0\n", b"\xff\xfe"])
def test_damaged_checkpoint_is_reported_and_reads_as_empty(damage: bytes) -> None:
    files = SimFiles()
    log_dir = _taken_over(files)
    for name in OFFSET_CHECKPOINTS:
        log_dir.write_offsets(name, {T0: 5})
    log_dir.release()
    files.overwrite(f"/data/{file_names.RECOVERY_POINT_CHECKPOINT}", damage)
    again, reports = _log_dir(files)
    again.open()
    assert again.recovery_points == {}
    assert again.high_watermarks == {T0: 5}
    assert len(reports) == 1
    assert file_names.RECOVERY_POINT_CHECKPOINT in reports[0]


def test_failed_write_does_not_change_the_offsets() -> None:
    files = SimFiles()
    log_dir = _taken_over(files)
    log_dir.write_offsets(file_names.LOG_START_OFFSET_CHECKPOINT, {T0: 5})
    files.fail_when(lambda operation: operation.name == "sync", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        log_dir.write_offsets(file_names.LOG_START_OFFSET_CHECKPOINT, {T0: 9})
    assert log_dir.log_starts == {T0: 5}


def test_deleted_logs_are_removed_from_the_checkpoints() -> None:
    files = SimFiles()
    log_dir = _taken_over(files)
    log_dir.write_offsets(file_names.LOG_START_OFFSET_CHECKPOINT, {T0: 5, T1: 6})
    log_dir.write_offsets(file_names.RECOVERY_POINT_CHECKPOINT, {T1: 7})
    written: list[Operation] = []
    files.on_operation = written.append
    log_dir.forget([TopicPartition("never", 0)])
    assert written == []
    log_dir.forget([T0])
    assert {operation.path for operation in written if operation.name == "sync"} == {
        f"/data/{file_names.LOG_START_OFFSET_CHECKPOINT}.tmp"
    }
    log_dir.release()
    again = _opened(files)
    assert again.log_starts == {T1: 6}
    assert again.recovery_points == {T1: 7}


def test_directories_of_a_killed_creation_survive_a_power_loss_after_the_next_start() -> None:
    for seed in range(20):
        files = SimFiles(["/"])
        _taken_over(files)
        files.mkdir("/data/t-0")
        files = files.kill()
        _taken_over(files)
        assert files.crash(random.Random(seed)).is_dir("/data/t-0")
