"""Whose turn it is next, among the connections that have requests left in user space.

A turn ends after so many requests or so much time, and the bytes that are left then get no event
from the kernel, which has handed them over already. Such a connection waits here; it is called
again as soon as the reactor has looked at all other sockets.

The reactor calls every socket that is readable before it looks again, so the turns that hundreds of
connections take as their bytes arrive add up. `spent` counts those of one pass of the reactor;
while they are too long, the queue `is_behind`, and connections take short turns or wait here.

Reactor thread only. Invariant: a connection waits at most once, and while one waits a timer is set.
"""

from __future__ import annotations

from typing import Protocol

from plogd.ports import Clock, Timers

PASS_MAX_MS = 8.0
"""How long turns are given before the reactor looks at the sockets again."""
DIRECT_MAX_MS = 8.0
"""How long turns may last in one pass of the reactor before further ones are short."""


class TakesTurns(Protocol):
    """What waits here."""

    def take_turn(self) -> None:
        """Handle some requests; add yourself again if there are more."""
        ...


class RunQueue:
    """Connections waiting for a turn, first come first served.

    Attributes:
        is_behind: the turns of this pass of the reactor have lasted too long.
    """

    def __init__(self, timers: Timers, clock: Clock) -> None:
        self._timers = timers
        self._clock = clock
        # A dict as an ordered set: leaving it early is as cheap as joining.
        self._waiting: dict[TakesTurns, None] = {}
        self._is_scheduled = False
        self._spent_ms = 0.0
        self.is_behind = False

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, connection: TakesTurns) -> None:
        """Give `connection` a turn soon, never inside this call; harmless if it waits already."""
        self._waiting[connection] = None
        self._schedule()

    def discard(self, connection: TakesTurns) -> None:
        """Forget `connection`, whether it waits or not."""
        self._waiting.pop(connection, None)

    def spent(self, turn_ms: float) -> None:
        """A connection has taken a turn of `turn_ms` that was not given to it here."""
        if turn_ms <= 0:
            return
        if not self._spent_ms:
            self._timers.call_later(0, self._begin_pass)
        self._spent_ms += turn_ms
        self.is_behind = self._spent_ms > DIRECT_MAX_MS

    def _begin_pass(self) -> None:
        self._spent_ms = 0.0
        self.is_behind = False

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._timers.call_later(0, self._run)
            self._is_scheduled = True

    def _run(self) -> None:
        self._is_scheduled = False
        until_ms = self._clock.monotonic_ms() + PASS_MAX_MS
        try:
            # Those that join meanwhile stand behind these and get the next pass.
            for _ in range(len(self._waiting)):
                connection = next(iter(self._waiting), None)
                if connection is None:
                    break  # A turn made others leave.
                del self._waiting[connection]
                connection.take_turn()
                if self._clock.monotonic_ms() >= until_ms:
                    break
        finally:
            if self._waiting:
                self._schedule()
