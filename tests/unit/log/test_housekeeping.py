"""Passes over all logs: errors affect one log, and passes run in slices."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import replace

import pytest

from plog.errors import KafkaStorageError
from plogd.log.log import Log
from tests.helpers.log.log_site import CONFIG, LogSite, base_offsets, four_segments


def _logs(count: int, site: LogSite | None = None) -> tuple[LogSite, list[Log]]:
    site = site or LogSite().start()
    return site, [site.create(f"t-{number}") for number in range(count)]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("a bug"), "ValueError('a bug')"),
        (KafkaStorageError("no room"), "no room"),
        (FileNotFoundError(errno.ENOENT, "missing"), "[Errno 2] missing"),
        (OSError(errno.ENOSPC, "full"), "[Errno 28] full; free space on the disk"),
    ],
)
def test_error_affects_one_log_and_is_reported_and_counted(error: Exception, text: str) -> None:
    site, logs = _logs(3)
    visited: list[Log] = []

    def visit(log: Log) -> None:
        visited.append(log)
        if log is logs[1]:
            raise error

    for _ in range(2):
        site.settle(site.manager.housekeeping.each("retention", logs, visit))
    assert visited == logs * 2
    line = f"retention of t-1 failed: {text}; it will be retried"
    assert site.reports.count(line) == 2
    assert site.manager.housekeeping.errors_by_task == {"retention": 2}
    assert site.offline == []


def test_disk_error_takes_its_directory_offline() -> None:
    site, logs = _logs(2, LogSite(("/a", "/b")).start())

    def visit(log: Log) -> None:
        if log is logs[0]:
            raise OSError(errno.EIO, "broken")

    site.settle(site.manager.housekeeping.each("retention", logs, visit))
    assert site.offline == [logs[0].log_dir]


def test_missing_file_of_one_log_does_not_end_retention_for_the_others() -> None:
    site = LogSite().start()
    config = replace(CONFIG, retention_ms=1000)
    logs = [site.create(name, config) for name in ("a-0", "b-0", "c-0")]
    for log in logs:
        site.fill(log, 12, timestamp=-1)
    site.settle()
    site.ports.advance(10_000)
    site.files.unlink(site.path(logs[0], 0))
    site.settle(site.manager.apply_retention(site.ports.clock.now_ms()))
    assert [len(log.segments) for log in logs] == [4, 1, 1]
    assert site.offline == []
    assert site.manager.housekeeping.errors_by_task == {"retention": 1}


@pytest.mark.parametrize("task", ["flush_overdue", "expire_producers"])
def test_bug_in_one_log_does_not_end_the_pass(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    site, logs = _logs(2)
    called: list[float] = []

    def die(now_ms: float) -> None:
        raise ValueError("a bug")

    for log, function in zip(logs, (die, called.append), strict=True):
        if task == "flush_overdue":
            monkeypatch.setattr(log, "flush_if_overdue", function)
        else:
            monkeypatch.setattr(type(log.producer_state), "expire", None, raising=False)
            monkeypatch.setattr(log, "producer_state", _Producers(function))
    site.settle(getattr(site.manager, task)(5.0))
    assert called == [5.0]
    assert sum(site.manager.housekeeping.errors_by_task.values()) == 1


class _Producers:
    def __init__(self, expire: object) -> None:
        self.expire = expire


def test_pass_over_many_logs_lets_other_work_run() -> None:
    site, log = four_segments(1)
    visits: list[Log] = []
    pass_ = site.manager.housekeeping.each("retention", [log] * 1000, visits.append)
    assert 0 < len(visits) < 1000
    turns = 0
    while not pass_.done:
        before = len(visits)
        assert site.ports.timers.run_due()
        turns += 1
        assert len(visits) > before or pass_.done
    assert len(visits) == 1000


def test_slow_visit_ends_the_slice() -> None:
    site, log = four_segments(1)
    visits: list[Log] = []

    def visit(log: Log) -> None:
        visits.append(log)
        site.ports.clock.advance_to(site.ports.clock.monotonic_ms() + 6)

    site.manager.housekeeping.each("retention", [log] * 5, visit)
    assert len(visits) == 1


def test_other_work_runs_between_steps() -> None:
    site, log = four_segments(1)
    steps: list[int] = []

    def visit(log: Log) -> Iterator[None]:
        for number in range(1000):
            steps.append(number)
            yield

    pass_ = site.manager.housekeeping.each("producer expiration", [log], visit)
    assert len(steps) < 1000
    site.settle(pass_)
    assert len(steps) == 1000


def test_log_deleted_during_a_pass_is_left_out() -> None:
    site, logs = _logs(2)
    visits: list[Log] = []

    def visit(log: Log) -> None:
        visits.append(log)
        logs[1].close()

    site.settle(site.manager.housekeeping.each("retention", logs, visit))
    assert visits == [logs[0]]


def test_errors_beyond_the_limit_are_only_counted() -> None:
    site, log = four_segments(1)

    def die(log: Log) -> None:
        raise ValueError("a bug")

    housekeeping = site.manager.housekeeping
    site.settle(housekeeping.each("flush", [log] * 30, die))
    assert len(site.reports) == 10
    assert housekeeping.errors_by_task == {"flush": 30}
    site.ports.advance(60_000)
    site.settle(housekeeping.each("flush", [log], die))
    assert len(site.reports) == 11
    assert base_offsets(log) == [0]
