"""Errors during a compaction: of the disk, of one file, and of the process that compacts."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace

import pytest

from plogd.log import file_names
from plogd.log.housekeeping import RETRY_MS
from plogd.log.log import Log
from plogd.work import WorkerDied
from tests.helpers.log.compaction_site import (
    COMPACT,
    checkpointed_offset,
    compact,
    latest,
    put,
    stored,
    unfinished_files,
)
from tests.helpers.log.log_site import LogSite
from tests.helpers.sim.sim_files import Operation


def _create(site: LogSite, name: str = "t-0", count: int = 30) -> Log:
    log = site.create(name, COMPACT)
    for number in range(count):
        put(site, log, b"k%d" % (number % 3), b"%d" % number)
    site.settle()
    site.write_checkpoints()
    return log


def _is_compacted(log: Log) -> bool:
    return len(stored(log)) < 15


def _errors(site: LogSite) -> int:
    return site.manager.housekeeping.errors_by_task["compaction"]


def _fail(site: LogSite, error_number: int, applies: Callable[[Operation], bool]) -> None:
    site.files.fail_when(applies, error_number)


def _check_retried(site: LogSite, log: Log, expected: object) -> None:
    """The failed compaction of `log` has changed nothing; the next one succeeds."""
    cleaner = site.manager.cleaner
    assert list(cleaner.uncleanable) == [log]
    assert _errors(site) == 1
    assert [line for line in site.reports if line.startswith("compaction of t-0 failed: ")]
    assert (site.offline, site.bugs) == ([], [])
    site.files.fail_no_more()
    assert latest(log) == expected
    site.ports.advance(RETRY_MS)
    assert compact(site)
    assert _is_compacted(log)
    assert cleaner.uncleanable == {}
    assert latest(log) == expected
    assert unfinished_files(site, log) == []
    assert latest(site.kill().log()) == expected


# -- a full disk ------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".log.cleaned", ".index.swap", ".timeindex.swap"])
@pytest.mark.parametrize("name", ["create", "append"])
def test_full_disk_for_a_new_segment_ends_the_compaction_until_later(
    name: str, suffix: str
) -> None:
    site = LogSite().start()
    log = _create(site)
    expected = latest(log)
    _fail(site, errno.ENOSPC, lambda one: one.name == name and one.path.endswith(suffix))
    compact(site)
    if site.manager.cleaner.uncleanable:
        assert unfinished_files(site, log) == []
        _check_retried(site, log, expected)
    else:  # An index without an entry is not written.
        assert name == "append"


def test_full_disk_for_the_recovery_points_ends_the_compaction_until_later() -> None:
    site = LogSite().start()
    log = _create(site)
    for number in range(12):
        put(site, log, b"k%d" % (number % 3), b"another %d" % number)
    site.settle()
    expected = latest(log)
    _fail(site, errno.ENOSPC, lambda one: file_names.RECOVERY_POINT_CHECKPOINT in one.path)
    compact(site)
    assert not _is_compacted(log)
    _check_retried(site, log, expected)


def test_compacted_records_survive_a_kill_without_producer_snapshots() -> None:
    """Recovery must not take an empty segment for one whose records were not synced."""
    site = LogSite().start()
    log = site.create("t-0", COMPACT)
    for number in range(20):
        put(site, log, b"k%d" % (number % 2), b"%d" % number)
    site.settle()
    while compact(site):
        pass
    expected = latest(log)
    assert not log.segments.first.size_bytes
    site = site.next_life()
    for name in site.files.listdir(log.directory):
        if name.endswith(file_names.SNAPSHOT_SUFFIX):
            site.files.unlink(f"{log.directory}/{name}")
    assert latest(site.start().log()) == expected


@pytest.mark.parametrize("error_number", [errno.ENOSPC, errno.EMFILE])
@pytest.mark.parametrize("number", range(1, 8))
def test_refused_swap_leaves_the_old_segments_and_is_retried(
    number: int, error_number: int
) -> None:
    site = LogSite().start()
    log = _create(site)
    expected = latest(log)
    count = 0

    def applies(operation: Operation) -> bool:
        nonlocal count
        is_of_swap = operation.name in ("rename", "sync_dir", "open", "create")
        if is_of_swap and any(name.endswith(".log.cleaned") for name in _names(site, log)):
            count += "t-0" in operation.path
        return count == number

    site.ports.jobs.submit("work", lambda: None)
    _fail(site, error_number, applies)
    compact(site)
    site.files.fail_no_more()
    assert latest(log) == expected
    assert (site.offline, site.bugs) == ([], [])
    site.ports.advance(2 * RETRY_MS)
    compact(site)
    assert _is_compacted(log)
    assert unfinished_files(site, log) == []


def _names(site: LogSite, log: Log) -> list[str]:
    return sorted(site.files._directory(log.directory).entries)


@pytest.mark.parametrize("call", ["open_on_demand", "sync_dir"])
def test_swap_that_fails_after_its_rename_does_not_bring_removed_records_back(call: str) -> None:
    """Otherwise, a later startup would complete the swap, and replace newer segments."""
    site = LogSite().start()
    log = _create(site)
    _refuse_after_commit(site, log, call)
    compact(site)
    assert site.manager.cleaner.uncleanable
    assert not _is_compacted(log)
    site.settle(log.truncate_to(2))
    site.epoch = 5
    for number in range(20):
        put(site, log, b"new", b"new %d" % number)
    site.settle()
    site = site.kill()
    assert [one.offset for one in stored(site.log())] == list(range(22))
    assert {one.key for one in stored(site.log()) if one.offset >= 2} == {b"new"}


def _refuse_after_commit(site: LogSite, log: Log, call: str) -> None:
    """Let `call` fail for lack of descriptors once the records have their new suffix."""
    real = getattr(site.files, call)

    def refuse(path: str) -> object:
        if any(name.endswith(".log.swap") for name in _names(site, log)):
            setattr(site.files, call, real)
            raise OSError(errno.EMFILE, "Too many open files", path)
        return real(path)

    setattr(site.files, call, refuse)


def test_completion_of_a_swap_is_retried_on_a_full_disk() -> None:
    site = LogSite().start()
    log = _create(site)
    expected = latest(log)
    _fail(site, errno.ENOSPC, lambda one: one.name == "rename" and one.path.endswith("0.log"))
    later = site.manager.cleaner.run()
    site.settle()
    assert not later.done
    assert latest(log) == expected
    site.files.fail_no_more()
    site.ports.advance(RETRY_MS)
    assert later.done
    assert _is_compacted(log)
    assert unfinished_files(site, log) == []


def test_stop_does_not_wait_for_a_swap_that_a_full_disk_prevents() -> None:
    site = LogSite().start()
    log = _create(site)
    expected = latest(log)
    _fail(site, errno.ENOSPC, lambda one: one.name == "rename" and one.path.endswith("0.log"))
    site.manager.cleaner.run()
    site.settle()
    site.stop()
    site.files.fail_no_more()
    site = site.kill()
    log = site.log()
    assert latest(log) == expected
    assert unfinished_files(site, log) == []
    assert not [line for line in site.reports if "lost" in line]


# -- a failed disk ----------------------------------------------------------------------------


def test_unreadable_segment_fails_only_the_compaction_of_its_log() -> None:
    site = LogSite().start()
    log = _create(site)
    others = [_create(site, name, 24) for name in ("u-0", "v-0")]
    expected = latest(log)
    site.files.fail_when(
        lambda one: one.is_read and one.name == "pread" and one.path == site.path(log, 0),
        errno.EIO,
    )
    for _ in range(5):
        compact(site)
    assert [_is_compacted(other) for other in others] == [True, True]
    _check_retried(site, log, expected)


def test_log_that_cannot_be_compacted_is_not_tried_again_at_once() -> None:
    site = LogSite(log_cleaner_backoff_ms=1000).start()
    log = _create(site)
    site.files.fail_when(lambda one: one.is_read and one.path == site.path(log, 0), errno.EIO)
    site.manager.cleaner.start()
    site.ports.advance(RETRY_MS)
    assert 1 <= _errors(site) <= 2
    site.ports.advance(3 * RETRY_MS)
    assert 3 <= _errors(site) <= 5


def test_log_with_an_unreadable_index_does_not_keep_others_from_being_compacted() -> None:
    site = LogSite().start()
    config = replace(COMPACT, min_compaction_lag_ms=1000)
    logs = []
    for name in ("t-0", "u-0"):
        log = site.create(name, config)
        for number in range(30):
            put(site, log, b"k%d" % (number % 3), b"%d" % number)
        logs.append(log)
    site.settle()
    site = site.restart()
    logs = [site.log(name) for name in ("t-0", "u-0")]
    site.ports.advance(10_000)
    site.files.fail_when(
        lambda one: one.path.startswith("/a/t-0/") and "index" in one.path, errno.EIO
    )
    for _ in range(3):
        compact(site)
    site.files.fail_no_more()
    assert [_is_compacted(log) for log in logs] == [False, True]
    assert site.offline == []


@pytest.mark.parametrize("name", ["rename", "sync_dir"])
def test_failed_disk_during_a_swap_takes_the_directory_offline(name: str) -> None:
    number = 0
    while True:
        number += 1
        site = LogSite().start()
        log = _create(site)
        expected = latest(log)
        count = 0

        def applies(
            operation: Operation, site: LogSite = site, log: Log = log, number: int = number
        ) -> bool:
            nonlocal count
            is_swap = any(".log." in one for one in _names(site, log))
            if operation.name == name and is_swap and operation.path.startswith("/a/t-0"):
                count += 1
            return count >= number and operation.name == name

        site.files.fail_when(applies, errno.EIO)
        compact(site)
        site.files.fail_no_more()
        if not count >= number:
            break
        # The child process reports an error while it writes; it has changed no segment yet.
        if site.offline:
            assert site.offline == ["/a"]
        else:
            assert site.manager.cleaner.uncleanable
        assert site.bugs == []
        assert latest(site.crash(number).log()) == expected
    assert number > 3


def test_failed_checkpoint_takes_the_directory_offline() -> None:
    site = LogSite().start()
    log = _create(site)
    expected = latest(log)
    site.files.fail_when(lambda one: "cleaner-offset" in one.path, errno.EIO)
    compact(site)
    assert site.offline == ["/a"]
    site.files.fail_no_more()
    assert latest(site.crash(1).log()) == expected


def test_checkpoint_that_does_not_fit_on_the_disk_is_written_later() -> None:
    site = LogSite().start()
    log = _create(site)
    expected = latest(log)
    site.files.fail_when(lambda one: "cleaner-offset" in one.path, errno.ENOSPC)
    compact(site)
    _check_retried(site, log, expected)
    assert checkpointed_offset(site, log) == log.segments.active.base_offset


# -- the process that compacts ----------------------------------------------------------------


class _DyingTask:
    """A task whose process dies before its report with number `at`."""

    def __init__(self, task: object, at: int) -> None:
        self._task = task
        self._left = at

    def next_report(self) -> object:
        if not self._left:
            raise WorkerDied("the process was killed by signal 9")
        self._left -= 1
        return self._task.next_report()  # type: ignore[attr-defined]

    def stop(self) -> None:
        self._task.stop()  # type: ignore[attr-defined]

    def close(self) -> None:
        self._task.close()  # type: ignore[attr-defined]


def test_death_of_the_process_between_any_two_reports_loses_nothing() -> None:
    at = 0
    while True:
        site = LogSite().start()
        log = _create(site)
        expected = latest(log)
        cleaner = site.manager.cleaner
        work = cleaner._work

        class DyingWork:
            def begin(self, function: object, argument: object, at: int = at) -> object:
                return _DyingTask(work.begin(function, argument), at)  # type: ignore  # noqa: B023

        cleaner._work = DyingWork()  # type: ignore[assignment]
        compact(site)
        cleaner._work = work
        if not cleaner.uncleanable:
            break
        assert "signal 9" in cleaner.uncleanable[log]
        assert latest(log) == expected
        assert unfinished_files(site, log) == []
        assert latest(site.next_life().start().log()) == expected if at % 2 else True
        if not at % 2:
            _check_retried(site, log, expected)
        at += 1
    assert at > 5
