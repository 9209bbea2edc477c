"""The stop of a broker's logs: all durable, and a mark of it that is never a lie."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from plogd.log import file_names
from tests.helpers.log_site import (
    CONFIG,
    LogSite,
    batch_offsets,
    four_segments,
    values,
)


def _break(site: LogSite, path: str, name: str = "") -> None:
    """Every operation below `path`, or those called `name`, fails from now on."""
    site.files.fail_when(
        lambda operation: operation.path.startswith(path) and operation.name.startswith(name),
        errno.EIO,
    )


def test_a_clean_stop_needs_no_recovery_and_loses_nothing() -> None:
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


def test_a_stop_lets_go_of_the_directories() -> None:
    site, _ = four_segments()
    site.stop()
    LogSite(files=site.files).start()


@pytest.mark.parametrize("name", ["sync", "rename", "sync_dir"])
def test_a_stop_that_fails_leaves_no_clean_mark(name: str) -> None:
    site, log = four_segments()
    site.fill(log, 2)
    _break(site, "/a", name)
    site.stop()
    assert not site.files.exists(f"/a/{file_names.CLEAN_SHUTDOWN_FILE}")
    site.files.fail_no_more()
    site = site.kill()
    assert list(range(17)) == batch_offsets(site.log())[:17]


def test_a_stop_on_a_full_disk_leaves_no_clean_mark() -> None:
    site, log = four_segments()
    site.files.fail_when(lambda operation: operation.name == "append", errno.ENOSPC)
    site.stop()
    assert site.reports[-1].startswith("cannot mark /a as cleanly shut down: ")
    site.files.fail_no_more()
    assert batch_offsets(site.kill().log()) == list(range(17))
    assert log.durable_end_offset == 17


def test_a_stop_waits_for_the_seals_under_way() -> None:
    """One that fails must not be overlooked because its log is closed already."""
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


def test_a_stop_before_all_logs_are_loaded_leaves_no_clean_mark() -> None:
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


def test_a_stop_in_the_middle_of_a_round_waits_for_it() -> None:
    site, log = four_segments()
    site.append(log)
    site.ports.timers.run_due()
    site.append(log)
    site.stop()
    assert log.durable_end_offset == 19
    assert batch_offsets(site.kill().log()) == list(range(19))


def test_deletions_under_way_at_a_stop_end_with_the_next_start() -> None:
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


def test_a_clean_stop_with_a_failed_directory_leaves_the_mark_of_the_others_only() -> None:
    site = LogSite(("/a", "/b")).start()
    for number in range(2):
        site.fill(site.create(f"t-{number}"), 3)
    site.settle()
    site.manager.storage_failed("/a", OSError(errno.EIO, "broken"))
    site.stop()
    assert file_names.CLEAN_SHUTDOWN_FILE not in site.files.listdir("/a")
    assert file_names.CLEAN_SHUTDOWN_FILE in site.files.listdir("/b")
