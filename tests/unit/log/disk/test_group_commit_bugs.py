"""Bugs in callbacks of a sync round: the other callbacks run, and rounds continue."""

from __future__ import annotations

import errno

import pytest

from plogd.log.disk.commit_delay import CommitDelay
from plogd.log.disk.group_commit import SyncTicket
from tests.unit.log.disk.test_group_commit import DirtyLog, Site


def _breaks(log: DirtyLog, *messages: str) -> None:
    """Make the next notifications of `log` raise."""
    left = list(messages)

    def complete_sync(ticket: SyncTicket) -> None:
        if left:
            raise ZeroDivisionError(left.pop(0))
        log.durable.append(ticket.end_offset)

    log.complete_sync = complete_sync  # type: ignore[method-assign]


def test_bug_in_one_log_does_not_prevent_notification_of_others() -> None:
    site = Site()
    broken, sound = site.log("t-0"), site.log("t-1")
    _breaks(broken, "a bug")
    broken.append()
    sound.append()
    with pytest.raises(ZeroDivisionError, match="a bug"):
        site.ports.settle()
    assert (broken.durable, sound.durable) == ([], [1])
    broken.append()
    site.ports.settle()
    assert broken.durable == [2]
    assert site.rounds.has_room


def test_files_are_released_even_if_a_log_raises() -> None:
    site = Site()
    logs = [site.log(f"t-{number}") for number in range(3)]
    for log in logs:
        _breaks(log, "a bug")
        log.append()
    with pytest.raises(ExceptionGroup, match="3 callbacks failed"):
        site.ports.settle()
    for log in logs:
        log.files[0].close()
        with pytest.raises(AssertionError, match="closed"):
            log.files[0].size()


def test_next_round_begins_after_a_reported_failure() -> None:
    site = Site()
    broken, failing = site.log("t-0", "/a"), site.log("t-1", "/b")
    _breaks(broken, "a bug")
    site.files.fail_when(
        lambda operation: operation.name == "sync" and operation.path.startswith("/b"), errno.EIO
    )
    broken.append()
    failing.append()
    site.end_turn()
    broken.append()
    with pytest.raises(ZeroDivisionError):
        site.ports.jobs.run_all()
    assert site.failures == [(("/b",), errno.EIO)]
    site.ports.settle()
    assert broken.durable == [2]


def test_waiters_are_woken_even_if_one_of_them_raises() -> None:
    site = Site(max_unsynced_bytes=10)
    log = site.log()
    woken: list[str] = []

    def fails(_: None) -> None:
        raise ZeroDivisionError("a bug")

    log.append()
    site.rounds.room().then(fails, lambda error: None)
    site.rounds.room().then(lambda _: woken.append("room"), lambda error: None)
    site.rounds.idle().then(fails, lambda error: None)
    site.rounds.idle().then(lambda _: woken.append("idle"), lambda error: None)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            site.ports.settle()
    assert woken == ["room", "idle"]


def test_round_begins_when_the_commit_delay_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site()
    log = site.log()
    with monkeypatch.context() as patched:
        patched.setattr(CommitDelay, "must_wait", lambda gathering: 1 // 0)
        log.append()
        with pytest.raises(ZeroDivisionError):
            site.ports.settle()
    site.ports.settle()
    log.append()
    site.ports.settle()
    assert log.durable == [1, 2]
