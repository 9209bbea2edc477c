"""The lease of a session: from the sending of the last request that was answered (rule C3)."""

from __future__ import annotations

from collections import deque
from typing import Any

from plog.zookeeper.operations import ConnectionLost, NoNode, SessionState
from plogd.metadata.zookeeper.session import HEARTBEATS_PER_TIMEOUT, Session
from plogd.ports import Later
from tests.helpers.sim.sim_ports import SimPorts

TIMEOUT_MS = 6000
INTERVAL_MS = TIMEOUT_MS / HEARTBEATS_PER_TIMEOUT


class Client:
    """A client whose requests the test answers."""

    def __init__(self) -> None:
        self.session_id = 1
        self.session_timeout_ms = TIMEOUT_MS
        self.sent: deque[Later[Any]] = deque()

    def listen(self, on_state: Any) -> None:
        """Pass on the states that the test chooses."""
        self.report = on_state

    def exists(self, path: str, watch: Any = None) -> Later[Any]:
        """Send a request."""
        later: Later[Any] = Later()
        self.sent.append(later)
        return later


class Site:
    """A connected session."""

    def __init__(self) -> None:
        self.ports = SimPorts()
        self.client = Client()
        self.session = Session(
            self.client,  # type: ignore[arg-type]  # the session sends nothing but heartbeats
            clock=self.ports.clock,
            timers=self.ports.timers,
        )
        self.ended: list[float] = []
        self.session.on_lease_ended = lambda: self.ended.append(self.now_ms)
        self.client.report(SessionState.CONNECTED)

    @property
    def now_ms(self) -> float:
        """The time."""
        return self.ports.clock.monotonic_ms()


def test_lease_begins_when_the_request_is_sent() -> None:
    site = Site()
    sent_ms = site.now_ms
    site.ports.advance(1500)
    assert site.session.lease_end_ms < 0
    site.client.sent.popleft().succeed(None)
    assert site.session.lease_end_ms == sent_ms + TIMEOUT_MS


def test_heartbeats_without_answers_do_not_renew_the_lease() -> None:
    site = Site()
    site.client.sent.popleft().succeed(None)
    end_ms = site.session.lease_end_ms
    site.ports.advance(TIMEOUT_MS - 1)
    assert len(site.client.sent) == HEARTBEATS_PER_TIMEOUT - 1
    assert (site.session.lease_end_ms, site.ended) == (end_ms, [])
    site.ports.advance(1)
    assert site.ended == [end_ms]


def test_answered_heartbeats_renew_the_lease() -> None:
    site = Site()
    for _ in range(10):
        site.client.sent.popleft().succeed(None)
        site.ports.advance(INTERVAL_MS)
    assert site.ended == []
    assert site.session.lease_end_ms == site.now_ms - INTERVAL_MS + TIMEOUT_MS


def test_error_of_a_server_renews_the_lease_and_a_lost_connection_does_not() -> None:
    site = Site()
    site.client.sent.popleft().fail(NoNode("/controller"))
    end_ms = site.session.lease_end_ms
    assert end_ms == site.now_ms + TIMEOUT_MS
    site.ports.advance(INTERVAL_MS)
    site.client.sent.popleft().fail(ConnectionLost("broken"))
    assert site.session.lease_end_ms == end_ms


def test_answer_from_an_earlier_session_does_not_renew_the_lease() -> None:
    site = Site()
    site.client.session_id = 2
    site.client.sent.popleft().succeed(None)
    assert site.session.lease_end_ms < 0


def test_expired_session_has_no_lease_and_its_end_is_not_reported_again() -> None:
    site = Site()
    site.client.sent.popleft().succeed(None)
    site.client.report(SessionState.EXPIRED)
    assert site.session.lease_end_ms < 0
    site.ports.advance(2 * TIMEOUT_MS)
    assert site.ended == []


def test_lease_that_is_renewed_after_its_end_ends_again() -> None:
    site = Site()
    site.client.sent.popleft().succeed(None)
    site.ports.advance(TIMEOUT_MS)
    assert len(site.ended) == 1
    site.client.sent.pop().succeed(None)
    site.ports.advance(TIMEOUT_MS)
    assert len(site.ended) == 2
