"""Messages to systemd while the broker starts, serves and stops, on simulated ports."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from plogd.log.recovery.load_progress import LoadingStopped
from plogd.net.connections import Connections
from plogd.sdnotify import ServiceNotifier
from plogd.supervision import PROGRESS_MS, STALL_MAX_MS, Supervision
from tests.helpers.net_parts import ScriptedDispatch, make_connections
from tests.helpers.sim.sim_broker import LOG_DIR, SimBroker, create_topic
from tests.helpers.sim.sim_ports import outcome

EXTENSION = f"EXTEND_TIMEOUT_USEC={STALL_MAX_MS * 1000}"
WATCHDOG = {"WATCHDOG_USEC": "60000000"}


class Supervised:
    """A simulated broker with the messages that it sends to systemd."""

    def __init__(self, broker: SimBroker | None = None, **environment: str) -> None:
        self.site = broker or SimBroker()
        self.ports = self.site.ports
        self.messages: list[str] = []
        self.connections: Connections = make_connections(ScriptedDispatch(), self.ports)
        notifier = ServiceNotifier(
            {"NOTIFY_SOCKET": "/run/notify", **environment},
            lambda address, message: self.messages.append(message.decode()),
        )
        self.supervision = Supervision(
            notifier,
            self.site.broker,
            self.connections,
            clock=self.ports.clock,
            timers=self.site.broker.timers,
        )

    def serve(self) -> Supervised:
        """Start the broker, and report it as ready."""
        self.site.start()
        self.supervision.serving("127.0.0.1:9092")
        return self

    def sent(self) -> list[str]:
        """Return the messages since the last call."""
        sent, self.messages = self.messages, []
        return sent

    def status_after(self, by_ms: float) -> str | None:
        """Return the status that the task sends, `by_ms` later; None if it sends none."""
        self.ports.advance(by_ms)
        self.sent()
        self.supervision.update()
        sent = self.sent()
        return sent[0].removeprefix("STATUS=") if sent else None


def _killed(batches: int = 3) -> SimBroker:
    """Return a broker that starts on the logs of a killed one, with one topic."""
    site = SimBroker(num_recovery_threads_per_data_dir=1)
    site.files.reserve_supported = False
    create_topic(site.start(), "clicks")
    for _ in range(batches):
        site.produce("clicks", b"x" * 1000)
    ports = site.ports.next_life(site.files.kill())
    return SimBroker(ports=ports, num_recovery_threads_per_data_dir=1)


def _run_jobs(supervised: Supervised, count: int) -> None:
    for _ in range(count):
        supervised.ports.timers.run_due()
        if supervised.ports.jobs.waiting:
            supervised.ports.jobs.run_one()


# -- start ----------------------------------------------------------------------------------------


def test_start_reports_recovered_logs_and_bytes_and_extends_its_timeout() -> None:
    supervised = Supervised(_killed())
    supervised.supervision.starting()
    started = supervised.site.broker.start()
    texts: list[str] = []
    while not started.done:
        _run_jobs(supervised, 1)
        supervised.ports.timers.advance(PROGRESS_MS)
        texts += supervised.sent()
    assert outcome(started) is None
    assert all(text.startswith(f"{EXTENSION}\nSTATUS=") for text in texts)
    assert texts[-1].splitlines()[1].startswith("STATUS=recovering 2 of 2 logs, ")


def test_start_without_progress_is_not_extended() -> None:
    supervised = Supervised(_killed())
    supervised.supervision.starting()
    supervised.site.broker.start()
    _run_jobs(supervised, 20)
    supervised.ports.timers.advance(PROGRESS_MS)
    assert supervised.sent() != []
    supervised.ports.timers.advance(100 * PROGRESS_MS)
    assert supervised.sent() == []


def test_progress_inside_one_log_is_reported() -> None:
    supervised = Supervised()
    supervised.supervision.starting()
    work = supervised.site.broker.log_manager.load_progress.begin(9_000_000_000)
    for scanned_bytes in (4_100_000_000, 4_200_000_000):
        work.scanned_to(scanned_bytes)
        supervised.ports.advance(PROGRESS_MS)
    assert supervised.sent() == [
        f"{EXTENSION}\nSTATUS=recovering 0 of 1 logs, {done} of 9.0 GB" for done in (4.1, 4.2)
    ]


def test_ready_ends_the_reports_of_progress() -> None:
    supervised = Supervised()
    supervised.supervision.starting()
    supervised.serve()
    assert [message.split("=")[0] for message in supervised.sent()] == ["READY"]
    supervised.site.broker.log_manager.load_progress.begin().step()
    supervised.ports.advance(10 * PROGRESS_MS)
    assert supervised.sent() == []


def test_reason_of_a_failed_start_remains_the_status() -> None:
    supervised = Supervised()
    supervised.supervision.starting()
    supervised.supervision.failed("cannot start: no")
    supervised.supervision.stopping()
    assert supervised.sent() == ["STATUS=cannot start: no", "STOPPING=1"]


# -- serving --------------------------------------------------------------------------------------


def test_ready_states_listeners_partitions_and_connections() -> None:
    supervised = Supervised().serve()
    assert supervised.sent() == [
        "READY=1\nSTATUS=listening on 127.0.0.1:9092; 0 partitions, 0 connections; in 0 B/s, "
        "out 0 B/s"
    ]


def test_status_has_bytes_per_second_since_the_last_status() -> None:
    supervised = Supervised().serve()
    supervised.connections.bytes_in += 12_000_000
    supervised.connections.bytes_out += 34_000_000
    assert str(supervised.status_after(10_000)).endswith("in 1.2 MB/s, out 3.4 MB/s")
    assert str(supervised.status_after(10_000)).endswith("in 0 B/s, out 0 B/s")


def test_unchanged_status_is_not_sent_again() -> None:
    supervised = Supervised().serve()
    assert supervised.status_after(10_000) is None


def test_status_names_offline_log_directories() -> None:
    supervised = Supervised(SimBroker(log_dirs=(LOG_DIR, "/other"))).serve()
    supervised.site.broker.log_manager.storage_failed("/other", OSError(errno.EIO, "broken"))
    assert "; log directories offline: /other; " in str(supervised.status_after(10_000))


def test_status_names_a_full_directory_until_writes_succeed_again() -> None:
    supervised = Supervised().serve()
    create_topic(supervised.site, "clicks")
    supervised.site.files.fail_when(lambda operation: operation.name == "append", errno.ENOSPC)
    supervised.site.produce("clicks", b"x")
    assert f"; writes to {LOG_DIR} are rejected: " in str(supervised.status_after(10_000))
    supervised.site.files.fail_no_more()
    assert "rejected" not in str(supervised.status_after(60_000))


def test_status_says_that_the_broker_is_not_registered() -> None:
    site = _killed()
    site.files.capacity_bytes = site.files.used_bytes
    supervised = Supervised(site).serve()
    assert f"; writes are rejected: no space left in {LOG_DIR}; " in supervised.sent()[0]


def test_nothing_is_sent_or_counted_without_a_service_manager() -> None:
    supervised = Supervised(NOTIFY_SOCKET="").serve()
    supervised.connections.bytes_in += 1000
    assert supervised.status_after(10_000) is None
    assert supervised.supervision._traffic.bytes_in == 0


# -- watchdog -------------------------------------------------------------------------------------


def test_watchdog_is_fed_at_half_its_interval_from_ready_to_the_end_of_the_stop() -> None:
    supervised = Supervised(**WATCHDOG)
    supervised.supervision.starting()
    supervised.ports.advance(60_000)
    assert "WATCHDOG=1" not in supervised.sent()
    supervised.serve()
    supervised.ports.advance(90_000)
    assert supervised.sent().count("WATCHDOG=1") == 4
    supervised.supervision.stopping()
    supervised.ports.advance(60_000)
    assert supervised.sent().count("WATCHDOG=1") == 2
    supervised.supervision.ended()
    supervised.ports.advance(120_000)
    assert supervised.sent() == []


def test_no_watchdog_message_is_sent_without_a_watchdog() -> None:
    supervised = Supervised().serve()
    supervised.ports.advance(120_000)
    assert "WATCHDOG=1" not in supervised.sent()


# -- stop -----------------------------------------------------------------------------------------


def test_stop_reports_closed_logs_and_extends_its_timeout() -> None:
    supervised = Supervised().serve()
    create_topic(supervised.site, "clicks", 4)
    supervised.sent()
    supervised.supervision.stopping()
    stopped = supervised.site.broker.stop()
    texts: list[str] = []
    while not stopped.done:
        _run_jobs(supervised, 1)
        supervised.ports.timers.advance(PROGRESS_MS)
        texts += supervised.sent()
    assert texts[0] == "STOPPING=1\nSTATUS=stopping"
    assert texts[-1] == f"{EXTENSION}\nSTATUS=stopping: closed 5 of 5 logs"


def test_stop_during_recovery_ends_the_start() -> None:
    supervised = Supervised(_killed())
    started = supervised.site.broker.start()
    while not supervised.site.broker.log_manager.load_progress.amount.total_logs:
        _run_jobs(supervised, 1)
    stopped = supervised.site.broker.stop()
    supervised.site.settle()
    assert outcome(stopped) is None
    with pytest.raises(LoadingStopped):
        outcome(started)
    after: Any = SimBroker(ports=supervised.ports.next_life(supervised.site.files.kill())).start()
    assert after.fetch("clicks").high_watermark == 3


def test_status_shows_a_full_disk_before_a_write_is_refused() -> None:
    supervised = Supervised().serve()
    files = supervised.site.files
    files.capacity_bytes = files.used_bytes
    supervised.status_after(10_000)
    supervised.ports.advance(0)
    assert f"; no space left in {LOG_DIR}; " in str(supervised.status_after(10_000))
    files.capacity_bytes = None
    supervised.status_after(10_000)
    supervised.ports.advance(0)
    assert "no space" not in str(supervised.status_after(10_000))


def test_space_is_looked_up_once_while_a_disk_hangs() -> None:
    supervised = Supervised().serve()
    jobs = supervised.ports.jobs
    before = len(jobs.waiting)
    for _ in range(3):
        supervised.supervision.update()
    assert len(jobs.waiting) == before + 1
