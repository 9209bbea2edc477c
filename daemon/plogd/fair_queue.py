"""Fair scheduling for large requests: one slice of one request per pass of the reactor.

All clients share the reactor, so a request with thousands of elements is handled a few elements at
a time, and waits for its next turn in between. `FairQueue` grants turns in order of arrival, one in
each pass of the reactor. A client therefore waits for at most one slice of another client's
request, no matter how many large requests are in progress.

A coroutine loops with `Slices.over`, which waits for a turn after every `SLICE` elements:

    slices = Slices(queue)
    async for topic in slices.over(request.topics):
        ...

This module is pure, and every package of the broker uses it on the reactor's thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterable
from typing import Final, TypeVar

from plogd.ports import Later, Timers

SLICE: Final = 128
"""Number of elements handled in one turn. An element takes 1 to 10 microseconds, so a turn takes
about a millisecond. This is not a setting, because a larger value delays other clients and a
smaller value only adds turns."""

PAUSE_AFTER_TURNS: Final = 16
PAUSE_MS: Final = 0.1
"""Duration of the pauses in which the reactor is idle while large requests run. epoll rounds the
time up to a millisecond.

Threads need the interpreter lock, which the reactor releases only for an instant when it polls its
sockets. A thread that wakes up after a disk sync misses that instant, and CPython restarts its wait
each time. Without pauses, a sync waited 125 ms for a request whose turns took 0.1 ms each."""

T = TypeVar("T")


class FairQueue:
    """The requests that wait for their next turn, in first-come, first-served order."""

    __slots__ = ("_is_scheduled", "_timers", "_turns", "_waiting")

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._waiting: deque[Later[None]] = deque()
        self._is_scheduled = False
        self._turns = 0
        """Turns since the last pause."""

    def __len__(self) -> int:
        return len(self._waiting)

    def turn(self) -> Later[None]:
        """Wait until all calls that are due and all earlier turns have run."""
        # Scheduled first: if the timer cannot be set, this raises, and no request waits for a turn
        # that is never granted.
        self._schedule()
        turn: Later[None] = Later()
        self._waiting.append(turn)
        return turn

    def _schedule(self) -> None:
        if self._is_scheduled:
            return
        is_pause_due = self._turns >= PAUSE_AFTER_TURNS
        self._timers.call_later(PAUSE_MS if is_pause_due else 0, self._run)
        self._is_scheduled = True
        if is_pause_due:
            self._turns = 0

    def _run(self) -> None:
        self._is_scheduled = False
        # One turn per pass of the reactor; the loop only skips the turns that were cancelled.
        while self._waiting and not self._is_scheduled:
            turn = self._waiting.popleft()
            # The request was cancelled, because its client has disconnected.
            if turn.done:
                continue
            self._turns += 1
            # The next turn is scheduled first, so that an exception in this turn does not stop the
            # others.
            if self._waiting:
                self._schedule()
            turn.succeed(None)


class Slices:
    """The slices of one request; all loops of the request share one count."""

    __slots__ = ("_left", "_queue", "_size")

    def __init__(self, queue: FairQueue, size: int = SLICE) -> None:
        self._queue = queue
        self._size = size
        self._left = size

    async def over(self, items: Iterable[T]) -> AsyncIterator[T]:
        """Iterate over `items`; wait for the next turn after each slice.

        `items` must not change during the iteration: pass a copy if other requests may change it.
        """
        for item in items:
            if self._left <= 0:
                await self._queue.turn()
                self._left = self._size
            self._left -= 1
            yield item

    def spend(self, count: int) -> None:
        """Count `count` elements that a single step of a loop has handled."""
        self._left -= count
