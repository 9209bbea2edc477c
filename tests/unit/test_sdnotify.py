"""The messages that systemd receives."""

from __future__ import annotations

import pytest
from twisted.logger import LogLevel, capturedLogs

from plogd.sdnotify import ServiceNotifier


class Sent:
    """Records messages instead of sending them; fails like a socket on request."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, bytes]] = []
        self.error: OSError | None = None

    def __call__(self, address: str, message: bytes) -> None:
        if self.error is not None:
            raise self.error
        self.messages.append((address, message))


def notifier(sent: Sent, **environment: str) -> ServiceNotifier:
    return ServiceNotifier({"NOTIFY_SOCKET": "/run/notify", **environment}, sent)


def test_each_state_is_one_datagram() -> None:
    sent = Sent()
    notify = notifier(sent)
    notify.ready("serving 3 partitions\nREADY=0")
    notify.reloading(12.3456)
    notify.status("recovering")
    notify.progress("recovering 1 of 2 logs", 90_000)
    notify.progress(None, 90_000)
    notify.alive()
    notify.stopping("stopping")
    notify.stopping("")
    assert [message for _, message in sent.messages] == [
        b"READY=1\nSTATUS=serving 3 partitions READY=0",
        b"RELOADING=1\nMONOTONIC_USEC=12345",
        b"STATUS=recovering",
        b"EXTEND_TIMEOUT_USEC=90000000\nSTATUS=recovering 1 of 2 logs",
        b"EXTEND_TIMEOUT_USEC=90000000",
        b"WATCHDOG=1",
        b"STOPPING=1\nSTATUS=stopping",
        b"STOPPING=1",
    ]
    assert {address for address, _ in sent.messages} == {"/run/notify"}


def test_at_sign_names_an_abstract_socket() -> None:
    sent = Sent()
    notifier(sent, NOTIFY_SOCKET="@notify").alive()
    assert sent.messages[0][0] == "\0notify"


def test_nothing_is_sent_without_a_socket() -> None:
    sent = Sent()
    notify = ServiceNotifier({"WATCHDOG_USEC": "1000"}, sent)
    notify.ready("x")
    assert sent.messages == []
    assert notify.watchdog_interval_ms is None


def test_first_message_that_cannot_be_sent_is_logged() -> None:
    sent = Sent()
    notify = notifier(sent)
    with capturedLogs() as events:
        for error in (OSError(111, "refused"), OSError(11, "again"), None, OSError(2, "gone")):
            sent.error = error
            notify.alive()
    assert [(e["log_level"], e["error"].errno) for e in events] == [
        (LogLevel.warn, 111),
        (LogLevel.warn, 2),
    ]


@pytest.mark.parametrize(
    ("usec", "interval_ms"), [("30000000", 15_000), ("", None), ("0", None), ("-1", None)]
)
def test_watchdog_interval_is_half_of_the_timeout(usec: str, interval_ms: float | None) -> None:
    assert notifier(Sent(), WATCHDOG_USEC=usec).watchdog_interval_ms == interval_ms


@pytest.mark.parametrize(("pid", "interval_ms"), [("41", None), ("42", 15_000)])
def test_watchdog_of_another_process_is_ignored(pid: str, interval_ms: float | None) -> None:
    environment = {"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": pid}
    notify = ServiceNotifier(environment, Sent(), lambda: 42)
    assert notify.watchdog_interval_ms == interval_ms
