"""The sessions of the in-memory ZooKeeper, and when the leader of its ensemble ends them.

A leader ends a session when it has not noticed anything of the client for the session timeout. It
notices clients late: a server reports their requests only twice per tick. A tick is half of the
session timeout here, the longest that ZooKeeper allows by default, because that is the worst case
for the client's lease.

Source: ZooKeeper 3.8 SessionTrackerImpl, LearnerSessionTracker.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from plogd.ports import Clock, Timers

_PINGS_PER_TIMEOUT: Final = 3
"""A client that sends nothing else pings so often in each session timeout."""
_REPORTS_PER_TIMEOUT: Final = 4
"""How often a server reports the requests of its clients to the leader."""


@dataclass(slots=True, kw_only=True)
class MockSession:
    """A session of one client; times are those of the monotonic clock."""

    id: int
    timeout_ms: int
    contact_ms: float
    """When a server last received something from the client."""
    reported_ms: float = 0.0
    """The value of `contact_ms` that the last report but one contained, or an earlier one."""
    connected_ms: float = 0.0
    is_connected: bool = False


class MockSessions:
    """All sessions of an ensemble; `expired` gets a session that ends because of its timeout.

    Nothing expires unless `has_quorum`.
    """

    def __init__(
        self,
        clock: Clock,
        timers: Timers,
        *,
        has_quorum: Callable[[], bool],
        expired: Callable[[int], None],
    ) -> None:
        self._clock = clock
        self._timers = timers
        self._has_quorum = has_quorum
        self._expired = expired
        self._sessions: dict[int, MockSession] = {}
        self._count = 0

    def open(self, timeout_ms: int) -> MockSession:
        """Return a new session."""
        self._count += 1
        # A recognizable number that differs from all versions and epochs.
        session_id = 0x1000_0000_0000 + self._count
        now_ms = self._clock.monotonic_ms()
        session = MockSession(id=session_id, timeout_ms=timeout_ms, contact_ms=now_ms)
        self._sessions[session_id] = session
        return session

    def get(self, session_id: int) -> MockSession | None:
        """Return the session, or None if it has ended."""
        return self._sessions.get(session_id)

    def end(self, session_id: int) -> bool:
        """End a session; return whether it existed."""
        return self._sessions.pop(session_id, None) is not None

    def restart_all(self) -> None:
        """Give every session its whole timeout, as a new leader does."""
        now_ms = self._clock.monotonic_ms()
        for session in self._sessions.values():
            session.contact_ms = max(session.contact_ms, now_ms)
            self._expire_later(session)

    def connected(self, session: MockSession) -> None:
        """Note that a client has connected to a server, which the leader always notices."""
        session.is_connected = True
        now_ms = self._clock.monotonic_ms()
        session.connected_ms = session.contact_ms = session.reported_ms = now_ms

    def touched(self, session: MockSession) -> None:
        """Note that a server has received something from a client."""
        session.reported_ms = self._last_reported_ms(session)
        session.contact_ms = self._clock.monotonic_ms()

    def disconnected(self, session: MockSession) -> None:
        """Note that a client is unreachable, and expire its session in time."""
        if not session.is_connected:
            return
        # The last ping before now, because that is the worst case for the client's lease.
        interval_ms = session.timeout_ms / _PINGS_PER_TIMEOUT
        last_ping_ms = self._last_multiple_ms(session, interval_ms)
        session.contact_ms = max(session.contact_ms, last_ping_ms)
        self._end_contact(session)

    def isolated(self, session: MockSession) -> None:
        """Note that the client's server has lost its leader, and expire the session in time."""
        if session.is_connected:
            session.contact_ms = self._last_reported_ms(session)
            self._end_contact(session)

    def _last_reported_ms(self, session: MockSession) -> float:
        """Return the time of the client's last request of which the leader knows."""
        interval_ms = session.timeout_ms / _REPORTS_PER_TIMEOUT
        is_reported = session.contact_ms < self._last_multiple_ms(session, interval_ms)
        return session.contact_ms if is_reported else session.reported_ms

    def _last_multiple_ms(self, session: MockSession, interval_ms: float) -> float:
        elapsed_ms = self._clock.monotonic_ms() - session.connected_ms
        return session.connected_ms + elapsed_ms // interval_ms * interval_ms

    def _end_contact(self, session: MockSession) -> None:
        session.is_connected = False
        self._expire_later(session)

    def _expire_later(self, session: MockSession) -> None:
        left_ms = session.contact_ms + session.timeout_ms - self._clock.monotonic_ms()
        self._timers.call_later(max(0.0, left_ms), partial(self._check, session))

    def _check(self, session: MockSession) -> None:
        is_over = self._clock.monotonic_ms() >= session.contact_ms + session.timeout_ms
        if is_over and self._has_quorum() and not session.is_connected:
            self._expired(session.id)
