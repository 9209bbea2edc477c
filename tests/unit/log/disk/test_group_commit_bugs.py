"""A bug in whoever hears of a sync round: the others hear of it all the same, and rounds go on."""

from __future__ import annotations

import errno

import pytest

from plogd.log.disk.commit_delay import CommitDelay
from plogd.log.disk.group_commit import SyncTicket
from tests.unit.log.disk.test_group_commit import DirtyLog, Site


def _breaks(log: DirtyLog, *messages: str) -> None:
    """The next times `log` is told that something is durable, that raises."""
    left = list(messages)

    def complete_sync(ticket: SyncTicket) -> None:
        if left:
            raise ZeroDivisionError(left.pop(0))
        log.durable.append(ticket.end_offset)

    log.complete_sync = complete_sync  # type: ignore[method-assign]


def test_a_bug_in_one_log_keeps_no_other_from_hearing() -> None:
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


def test_files_are_let_go_of_whatever_one_log_does() -> None:
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


def test_a_failure_is_told_and_the_next_round_begins_all_the_same() -> None:
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


def test_who_waits_for_room_or_for_the_end_is_woken_whatever_another_does() -> None:
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


def test_round_begins_when_waiting_for_company_fails(monkeypatch: pytest.MonkeyPatch) -> None:
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
