"""The order in which connections with unhandled requests get their turns.

The number of requests in a turn and its duration are limited. The kernel reports no event for the
bytes that are left over, because the broker has read them already. A connection with such bytes is
queued here and gets another turn after a round of the poller (poller.py).

In a pass of the reactor, the turns and closes of many connections add up. `spent` adds up their
time in a pass. If the total is too high, `is_behind` is set, and connections take short turns or
are queued here, as are TLS handshakes.

Reactor thread only. Invariant: a connection is queued at most once, and a timer is set while any
connection is queued.
"""

from __future__ import annotations

from typing import Protocol

from plogd.ports import Clock, Timers

PASS_MAX_MS = 2.0
"""Maximum time for queued turns before the reactor polls the sockets again. Short, because a small
request waits for the current pass, and its response for the pass in which its sync round ends."""
DIRECT_MAX_MS = 4.0
"""Maximum total time of turns in one pass of the reactor before further turns are short."""
UNTIMED_MS = 2.0
"""Turns up to this total time do not set the timer that begins the next pass, because a timer for
each turn would be 4 % of the steps of a small Produce. These turns count until a later pass ends,
so `is_behind` can be set too early, by at most this time, but never too late."""


class TakesTurns(Protocol):
    """A connection that can be queued."""

    def take_turn(self) -> None:
        """Handle some requests; the implementation queues itself again if more are left."""
        ...


class RunQueue:
    """Connections waiting for a turn, in first-in, first-out order.

    Attributes:
        is_behind: whether the turns of this pass of the reactor have taken too long.
    """

    def __init__(self, timers: Timers, clock: Clock) -> None:
        self._timers = timers
        self._clock = clock
        # A dict serves as an ordered set with cheap removal.
        self._waiting: dict[TakesTurns, None] = {}
        self._is_scheduled = False
        self._spent_ms = 0.0
        self.is_behind = False

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, connection: TakesTurns) -> None:
        """Grant `connection` a turn after this call; has no effect if it is already queued."""
        self._waiting[connection] = None
        self._schedule()

    def discard(self, connection: TakesTurns) -> None:
        """Remove `connection` if it is queued."""
        self._waiting.pop(connection, None)

    def spent(self, turn_ms: float) -> None:
        """Add the time of a turn, or of a close, that a connection took without being queued."""
        if turn_ms <= 0:
            return
        spent_ms = self._spent_ms + turn_ms
        if self._spent_ms <= UNTIMED_MS < spent_ms:
            self._timers.call_later(0, self._begin_pass)
        self._spent_ms = spent_ms
        self.is_behind = spent_ms > DIRECT_MAX_MS

    def _begin_pass(self) -> None:
        self._spent_ms = 0.0
        self.is_behind = False

    def _schedule(self) -> None:
        if not self._is_scheduled:
            # If no timer can be set, the next `add` tries again.
            self._timers.call_later(0, self._run)
            self._is_scheduled = True

    def _run(self) -> None:
        self._is_scheduled = False
        until_ms = self._clock.monotonic_ms() + PASS_MAX_MS
        try:
            # Connections added in the meantime are queued after these, and get turns in the next
            # pass.
            for _ in range(len(self._waiting)):
                connection = next(iter(self._waiting), None)
                if connection is None:
                    break  # A turn removed other connections.
                # Removed before its turn, because the turn may queue the connection again.
                del self._waiting[connection]
                connection.take_turn()
                if self._clock.monotonic_ms() >= until_ms:
                    break
        finally:
            if self._waiting:
                self._schedule()
