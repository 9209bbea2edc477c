"""The lease of a session ends before the ensemble can end the session (rule C3)."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from plog.zookeeper.operations import ConnectionLost, SessionState
from plogd.metadata.zookeeper.session import HEARTBEATS_PER_TIMEOUT, Session
from plogd.ports import Later, ready
from plogd.testing.mock_zookeeper import MockZooKeeper
from tests.helpers.sim.sim_ports import SimPorts

TIMEOUT_MS = 6000
INTERVAL_MS = TIMEOUT_MS / HEARTBEATS_PER_TIMEOUT
PING_MS = TIMEOUT_MS / 4
"""Longest time between two reports of a server to its leader."""
HANDSHAKE_MS = 70.0


class Client:
    """A client whose heartbeats the test answers."""

    def __init__(self) -> None:
        self.session_id = 1
        self.session_timeout_ms = TIMEOUT_MS
        self.handshake_age_ms = HANDSHAKE_MS
        self.sent: deque[Later[Any]] = deque()

    def listen(self, on_state: Any) -> None:
        """Pass on the states that the test chooses."""
        self.report = on_state

    def confirm(self) -> Later[Any]:
        """Send a heartbeat."""
        later: Later[Any] = Later()
        self.sent.append(later)
        return later

    def exists(self, path: str, watch: Any = None) -> Later[Any]:
        """Answer a read, as a server that has lost its leader does."""
        return ready(None)

    def sync(self) -> Later[Any]:
        """Answer at once, as a leader that has lost its quorum does."""
        return ready(None)


class Site:
    """A connected session."""

    def __init__(self) -> None:
        self.ports = SimPorts()
        self.ports.advance(1000)
        self.client = Client()
        self.session = Session(
            self.client,  # type: ignore[arg-type]  # the session sends nothing but heartbeats
            clock=self.ports.clock,
            timers=self.ports.timers,
        )
        self.ended: list[float] = []
        self.session.on_lease_ended = lambda: self.ended.append(self.now_ms)
        self.connected_ms = self.now_ms
        self.client.report(SessionState.CONNECTED)

    @property
    def now_ms(self) -> float:
        """The time."""
        return self.ports.clock.monotonic_ms()

    def beat(self, count: int = 1) -> None:
        """Answer heartbeats; the next one is sent after each of them."""
        for _ in range(count):
            self.client.sent.popleft().succeed(None)
            self.ports.advance(INTERVAL_MS)


def test_lease_begins_with_the_handshake() -> None:
    site = Site()
    site.ports.advance(500)
    assert site.session.lease_end_ms < 0
    site.client.sent.popleft().succeed(None)
    assert site.session.lease_end_ms == site.connected_ms - HANDSHAKE_MS + TIMEOUT_MS


def test_heartbeats_without_responses_do_not_renew_the_lease() -> None:
    site = Site()
    site.client.sent.popleft().succeed(None)
    end_ms = site.session.lease_end_ms
    site.ports.advance(end_ms - site.now_ms - 1)
    # The others wait, so that the server does not have to answer all of them later.
    assert len(site.client.sent) == 1
    assert (site.session.lease_end_ms, site.ended) == (end_ms, [])
    site.ports.advance(1)
    assert site.ended == [end_ms]


def test_heartbeats_keep_at_least_half_of_the_session_timeout() -> None:
    site = Site()
    for _ in range(10):
        site.client.sent.popleft().succeed(None)
        site.ports.advance(INTERVAL_MS)
        assert site.session.lease_end_ms - site.now_ms >= TIMEOUT_MS / 2
    assert site.ended == []
    # Just before the response to the last heartbeat.
    assert site.session.lease_end_ms == site.now_ms - 3 * INTERVAL_MS + TIMEOUT_MS


def test_heartbeat_counts_when_the_next_but_one_is_answered() -> None:
    """The leader may learn about it only with the ping that follows its response."""
    site = Site()
    site.beat(2)
    handshake_end_ms = site.connected_ms - HANDSHAKE_MS + TIMEOUT_MS
    assert site.session.lease_end_ms == handshake_end_ms
    site.beat()
    assert site.session.lease_end_ms == site.connected_ms + TIMEOUT_MS
    site.beat()
    assert site.session.lease_end_ms == site.connected_ms + INTERVAL_MS + TIMEOUT_MS


def test_heartbeat_that_was_answered_after_the_last_ping_does_not_count_yet() -> None:
    site = Site()
    site.ports.advance(2 * INTERVAL_MS - PING_MS + 1)
    site.client.sent.popleft().succeed(None)
    site.ports.advance(INTERVAL_MS - site.now_ms + site.connected_ms)
    site.beat()
    site.client.sent.popleft().succeed(None)
    assert site.now_ms == site.connected_ms + 2 * INTERVAL_MS
    assert site.session.lease_end_ms == site.connected_ms - HANDSHAKE_MS + TIMEOUT_MS


def test_other_responses_do_not_renew_the_lease() -> None:
    """A server that has lost its leader answers reads, and a leader without a quorum also syncs."""
    site = Site()
    site.client.sent.popleft().succeed(None)
    end_ms = site.session.lease_end_ms
    for _ in range(20):
        site.ports.advance(100)
        site.session.exists("/controller").then(lambda _: None, pytest.fail)
        site.session.sync().then(lambda _: None, pytest.fail)
    assert site.session.lease_end_ms == end_ms


def test_lost_heartbeat_does_not_renew_the_lease() -> None:
    site = Site()
    site.client.sent.popleft().succeed(None)
    end_ms = site.session.lease_end_ms
    site.ports.advance(INTERVAL_MS)
    site.client.sent.popleft().fail(ConnectionLost("broken"))
    assert site.session.lease_end_ms == end_ms


def test_next_connection_counts_from_its_own_handshake() -> None:
    site = Site()
    site.beat(5)
    end_ms = site.session.lease_end_ms
    [late] = site.client.sent
    site.client.report(SessionState.SUSPENDED)
    site.ports.advance(2000)
    site.client.handshake_age_ms = 10.0
    site.client.report(SessionState.CONNECTED)
    connected_ms = site.now_ms
    late.succeed(None)
    assert site.session.lease_end_ms == end_ms
    site.client.sent.pop().succeed(None)
    assert site.session.lease_end_ms == connected_ms - 10.0 + TIMEOUT_MS


def test_expired_session_has_no_lease_and_its_end_is_not_reported_again() -> None:
    site = Site()
    site.client.sent.popleft().succeed(None)
    site.client.report(SessionState.EXPIRED)
    assert site.session.lease_end_ms < 0
    site.ports.advance(2 * TIMEOUT_MS)
    assert site.ended == []


def test_closed_session_reports_no_end() -> None:
    site = Site()
    site.beat()
    [late] = site.client.sent
    site.session.close()
    late.succeed(None)
    site.ports.advance(2 * TIMEOUT_MS)
    assert site.ended == []


def test_lease_that_is_renewed_after_its_end_ends_again() -> None:
    site = Site()
    site.client.sent.popleft().succeed(None)
    site.ports.advance(TIMEOUT_MS)
    assert len(site.ended) == 1
    site.beat()
    for _ in range(3):
        site.beat()
    assert site.session.lease_end_ms > site.now_ms
    ends = len(site.ended)
    site.ports.advance(TIMEOUT_MS)
    assert len(site.ended) == ends + 1


@pytest.mark.parametrize("offset_ms", range(0, TIMEOUT_MS, 250))
def test_lease_ends_before_the_session_when_the_server_has_lost_its_leader(offset_ms: int) -> None:
    ports = SimPorts()
    ensemble = MockZooKeeper(ports.clock, ports.timers)
    client = ensemble.connect(session_timeout_ms=TIMEOUT_MS)
    session = Session(client, clock=ports.clock, timers=ports.timers)
    ports.advance(2 * TIMEOUT_MS + offset_ms)
    assert session.lease_end_ms > ports.clock.monotonic_ms()
    client.isolate()
    session_id = client.session_id
    read = session.exists("/")
    while ensemble.sessions.get(session_id) is not None:
        if read.done:  # The server still answers reads.
            read = session.exists("/")
        ports.timers.run_next()
    assert session.lease_end_ms <= ports.clock.monotonic_ms()
    assert session.state is SessionState.CONNECTED
