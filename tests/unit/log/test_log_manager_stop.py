"""Stopping the logs of a broker: everything is durable, and clean marks are true."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import Any

import pytest

from plogd.log import file_names
from plogd.log.log import Log
from plogd.log.recovery.load_progress import LoadingStopped
from tests.helpers.log.log_site import (
    CONFIG,
    LogSite,
    batch_offsets,
    four_segments,
    values,
)
from tests.helpers.sim.sim_files import SimFiles
from tests.helpers.sim.sim_ports import SimPorts


def _break(site: LogSite, path: str, name: str = "") -> None:
    """From now on, fail every operation below `path`, or those called `name`."""
    site.files.fail_when(
        lambda operation: operation.path.startswith(path) and operation.name.startswith(name),
        errno.EIO,
    )


def test_clean_stop_needs_no_recovery_and_loses_nothing() -> None:
    for seed in range(5):
        site = LogSite(("/a", "/b")).start()
        for number in range(4):
            config = replace(CONFIG, flush_messages=1 + number * 100)
            site.fill(site.create(f"t-{number}", config), 7)
        before = [values(site.log(f"t-{number}")) for number in range(4)]
        site.stop()
        site = site.crash(seed)
        assert all(log_dir.was_clean for log_dir in site.manager._dirs)
        assert [site.log(f"t-{number}").recovery_point for number in range(4)] == [7] * 4
        after = [values(site.log(f"t-{number}")) for number in range(4)]
        assert after[1:] == before[1:]
        assert list(after[0]) == list(range(7))


def test_stop_releases_the_directories() -> None:
    site, _ = four_segments()
    site.stop()
    LogSite(files=site.files).start()


@pytest.mark.parametrize("name", ["sync", "rename", "sync_dir"])
def test_stop_that_fails_leaves_no_clean_mark(name: str) -> None:
    site, log = four_segments()
    site.fill(log, 2)
    _break(site, "/a", name)
    site.stop()
    assert not site.files.exists(f"/a/{file_names.CLEAN_SHUTDOWN_FILE}")
    site.files.fail_no_more()
    site = site.kill()
    assert list(range(17)) == batch_offsets(site.log())[:17]


def test_stop_on_a_full_disk_leaves_no_clean_mark() -> None:
    site, log = four_segments()
    site.files.fail_when(lambda operation: operation.name == "append", errno.ENOSPC)
    site.stop()
    assert site.reports[-1].startswith("cannot mark /a as cleanly shut down: ")
    site.files.fail_no_more()
    assert batch_offsets(site.kill().log()) == list(range(17))
    assert log.durable_end_offset == 17


def test_stop_waits_for_seals_in_progress() -> None:
    """A failed seal must not be overlooked because its log is closed already."""
    site, log = four_segments()
    log.roll()
    site.files.fail_when(
        lambda operation: operation.name == "sync" and operation.path.endswith(".snapshot.tmp"),
        errno.EIO,
    )
    stopping = site.manager.shutdown()
    site.ports.timers.run_due()
    while site.ports.jobs.waiting and not site.offline:
        site.ports.jobs.run_one()
    site.files.fail_no_more()
    site.settle(stopping)
    assert site.offline == ["/a"]
    assert not site.files.exists(f"/a/{file_names.CLEAN_SHUTDOWN_FILE}")


def test_stop_before_all_logs_are_loaded_leaves_no_clean_mark() -> None:
    """KAFKA-10471: the others may still have to be recovered."""
    site, _ = four_segments()
    site = site.next_life()
    site.settle(site.manager.open_directories())
    site.manager.load_logs(site._topic_of)
    site.ports.jobs.run_one()
    site.stop()
    assert not site.files.exists(f"/a/{file_names.CLEAN_SHUTDOWN_FILE}")
    assert not site.files.exists(f"/a/{file_names.RECOVERY_POINT_CHECKPOINT}")
    assert "cannot mark /a as cleanly shut down: not all logs were loaded" in site.reports


def test_stop_waits_for_a_sync_round_in_flight() -> None:
    site, log = four_segments()
    site.append(log)
    site.ports.timers.run_due()
    site.append(log)
    site.stop()
    assert log.durable_end_offset == 19
    assert batch_offsets(site.kill().log()) == list(range(19))


def test_deletions_interrupted_by_a_stop_complete_at_the_next_start() -> None:
    site, log = four_segments()
    site.create("u-0")
    site.delete("u-0")
    log.log_start_offset = 10
    log.apply_retention(site.ports.clock.now_ms())
    site.stop()
    site.ports.advance(10 * CONFIG.file_delete_delay_ms)
    site = site.kill()
    log = site.log()
    assert site.listing(log) == [10, 15]
    assert [name for name in site.files.listdir(log.directory) if ".deleted" in name] == []
    assert [name for name in site.files.listdir("/a") if name[:2] in ("t-", "u-")] == ["t-0"]
    assert log.log_start_offset == 10


def test_clean_stop_marks_only_the_online_directories() -> None:
    site = LogSite(("/a", "/b")).start()
    for number in range(2):
        site.fill(site.create(f"t-{number}"), 3)
    site.settle()
    site.manager.storage_failed("/a", OSError(errno.EIO, "broken"))
    site.stop()
    assert file_names.CLEAN_SHUTDOWN_FILE not in site.files.listdir("/a")
    assert file_names.CLEAN_SHUTDOWN_FILE in site.files.listdir("/b")


def _stopped_during_recovery(reads: int) -> LogSite:
    """Kill a site with two logs, and stop its next life after `reads` reads of recovery."""
    site = LogSite(num_recovery_threads_per_data_dir=1).start()
    for name in ("t-0", "t-1"):
        site.fill(site.create(name), 17)
    site = site.next_life()
    site.settle(site.manager.open_directories())
    loading = site.manager.load_logs(site._topic_of)
    seen = 0

    def count(operation: Any) -> None:
        nonlocal seen
        seen += operation.name == "sync_dir" and operation.path.startswith("/a/t-")
        if seen == reads:
            site.manager.stop_loading()

    site.files.on_operation = count
    with pytest.raises(LoadingStopped):
        site.settle(loading)
    return site


@pytest.mark.parametrize("reads", [1, 2])
def test_stop_ends_a_recovery_and_the_next_start_recovers(reads: int) -> None:
    site = _stopped_during_recovery(reads)
    assert len(site.manager.logs) == reads - 1
    site.stop()
    assert not site.files.exists(f"/a/{file_names.CLEAN_SHUTDOWN_FILE}")
    site = site.kill()
    assert [list(values(site.log(name))) for name in ("t-0", "t-1")] == [list(range(17))] * 2


def test_stop_during_recovery_releases_the_directories_after_the_jobs() -> None:
    site = _stopped_during_recovery(1)
    site.stop()
    assert site.ports.jobs.waiting == []
    LogSite(files=site.files).start()


def test_stop_while_clean_logs_are_loaded_leaves_them_clean() -> None:
    site, _ = four_segments()
    site.stop()
    site = site.next_life()
    site.settle(site.manager.open_directories())
    loading = site.manager.load_logs(site._topic_of)
    site.manager.stop_loading()
    site.settle(loading)
    site.stop()
    assert site.files.exists(f"/a/{file_names.CLEAN_SHUTDOWN_FILE}")


def test_closed_logs_are_counted_during_a_stop() -> None:
    site = LogSite(("/a", "/b")).start()
    for number in range(4):
        site.create(f"t-{number}")
    site.stop()
    assert site.manager.closed_logs == 4


@pytest.mark.parametrize("worthwhile_bytes", [1, 1 << 30])
def test_stop_completes_time_indexes_that_recovery_could_not_write(worthwhile_bytes: int) -> None:
    """The next start does not read these segments, and would not know their largest timestamps."""
    site = LogSite(
        ports=SimPorts(files=SimFiles(["/a"]), worthwhile_bytes=worthwhile_bytes)
    ).start()
    # The last batch of each segment has no entry of its own.
    config = replace(CONFIG, index_interval_bytes=500)
    site.fill(site.create("t-0", config), 17)
    site = site.next_life()
    site.files.fail_when(
        lambda operation: operation.name == "append" and operation.path.endswith(".timeindex"),
        errno.ENOSPC,
    )
    site.start()
    expected = _largest_timestamps(site.log())
    site.files.fail_no_more()
    site.ports.advance(1000)  # Otherwise, the files may have changed since the stop.
    site.stop()
    site = site.kill()
    assert all(log_dir.was_clean for log_dir in site.manager._dirs)
    assert _largest_timestamps(site.log()) == expected
    assert len(set(expected)) == 4


def _largest_timestamps(log: Log) -> list[int]:
    return [segment.indexes.maximum.timestamp for segment in log.segments]
