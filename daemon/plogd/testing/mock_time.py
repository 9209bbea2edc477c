"""Time that a test can advance: a reactor with a movable clock, and the steps of an advance.

Both clocks of the broker are derived from the reactor's clock, so timers, periodic tasks, sessions
and timestamps advance together. Real time continues in the meantime; an advance is added to it.

`MockTime.advance` steps from one due timer to the next, so that each timer is called at its own
time, and waits at each step for the jobs that the timer causes. It does not wait for clients, which
use real time. Reactor thread only.
"""

from __future__ import annotations

import math
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

from twisted.internet.epollreactor import EPollReactor
from twisted.internet.task import LoopingCall

from plogd.ports import Later

PERIODIC_RUNS = 100
"""Minimum number of runs of a frequent periodic task in one `advance`.

A week contains 120,000 checkpoints of the high watermarks. All other timers are called at their own
time."""

_ROUNDS_MAX = 10
_LAST_ROUNDS_MAX = 100
"""Maximum number of waits for jobs, and for the jobs that they cause, in each step and in the last
step. These numbers are limited because clients may keep causing new jobs."""

_TINY_S = 1e-6
"""Added to each step, so that rounding does not leave a timer due shortly after the step."""


def _monotonic_s() -> float:
    """Return monotonic seconds; libraries that freeze time replace only time.monotonic."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


class MovableReactor(EPollReactor):
    """The reactor of one broker, whose clock is `offset_s` ahead of the system's.

    It is never the global reactor. It may run in any thread, and does not register that thread as
    Twisted's I/O thread.
    """

    # Twisted knows only one I/O thread per process, and the test may use it.
    _registerAsIOThread = False

    def __init__(self, offset_s: float = 0.0) -> None:
        self.offset_s = offset_s
        super().__init__()  # type: ignore[no-untyped-call]

    def seconds(self) -> float:
        """Return the time that all timers of this reactor use."""
        return _monotonic_s() + self.offset_s


class MovableClock:
    """The `Clock` of a broker on a `MovableReactor`."""

    __slots__ = ("_ahead_s", "_reactor")

    def __init__(self, reactor: MovableReactor) -> None:
        self._reactor = reactor
        # Measured once: even if the system's clock is set, both clocks advance equally.
        self._ahead_s = time.clock_gettime(time.CLOCK_REALTIME) - _monotonic_s()

    def now_ms(self) -> int:
        """Return wall-clock milliseconds since the epoch, advanced like the reactor's clock."""
        return int((self._ahead_s + self._reactor.seconds()) * 1000)

    def monotonic_ms(self) -> float:
        """Return monotonic milliseconds."""
        return self._reactor.seconds() * 1000.0


@dataclass(slots=True)
class _Move:
    """An `advance` that is pending or in progress."""

    total_s: float
    remaining_s: float
    done: Later[None]


class MockTime:
    """Advances the time of `reactor`, which is a MovableReactor or a test double."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._moves: deque[_Move] = deque()
        self._last_job = 0
        self._jobs: set[int] = set()
        """The jobs in progress."""
        self._awaited: set[int] = set()
        """The jobs that the next step waits for."""
        self._rounds = 0
        """The number of waits in this step."""

    def advance(self, seconds: float) -> Later[None]:
        """Let `seconds` pass; complete when everything due by then has happened."""
        # This form also rejects NaN.
        if not 0 <= seconds < math.inf:
            raise ValueError(f"cannot advance time by {seconds} s; use a finite number, 0 or more")
        move = _Move(seconds, seconds, Later())
        self._moves.append(move)
        # Otherwise, the end of the previous move starts this one.
        if len(self._moves) == 1:
            self._soon()
        return move.done

    def job_begun(self) -> int:
        """Count a submitted job; return its number for `job_ended`."""
        self._last_job += 1
        self._jobs.add(self._last_job)
        return self._last_job

    def job_ended(self, number: int) -> None:
        """Remove a job after its outcome has been handled."""
        self._jobs.remove(number)
        if number in self._awaited:
            self._awaited.remove(number)
            if not self._awaited:
                self._soon()

    def _soon(self) -> None:
        # Not with a timer, because `_due_in_s` would consider it the next due timer.
        self._reactor.callFromThread(self._step)

    def _step(self) -> None:
        """Advance to the next due timer; the reactor calls it in the same iteration."""
        move = self._moves[0]
        rounds_max = _ROUNDS_MAX if move.remaining_s > 0 else _LAST_ROUNDS_MAX
        # The outcomes of jobs may set timers, which must be called at this time.
        if self._jobs and self._rounds < rounds_max:
            self._rounds += 1
            self._awaited = set(self._jobs)
            return
        self._rounds = 0
        due_in_s = self._due_in_s(move)
        # The reactor calls timers that are already due before the next step.
        if due_in_s > 0:
            if move.remaining_s <= 0:
                self._end(move)
                return
            step_s = min(due_in_s, move.remaining_s)
            move.remaining_s -= step_s
            self._reactor.offset_s += step_s + _TINY_S
        self._soon()

    def _end(self, move: _Move) -> None:
        self._moves.popleft()
        if self._moves:
            self._soon()
        move.done.succeed(None)

    def _due_in_s(self, move: _Move) -> float:
        """Return the time until a timer is due; zero or negative if one is due now."""
        now_s = self._reactor.seconds()
        rest_s = _PeriodicRest(move)
        return min(
            (rest_s.stretched(call, call.getTime() - now_s) for call in self._due_calls()),
            default=math.inf,
        )

    def _due_calls(self) -> list[Any]:
        calls: list[Any] = self._reactor.getDelayedCalls()
        return calls


class _PeriodicRest:
    """The pause of frequent periodic tasks in a long move: they run once per hundredth of it."""

    def __init__(self, move: _Move) -> None:
        self._pause_s = move.total_s / PERIODIC_RUNS
        done_s = move.total_s - move.remaining_s
        self._rest_s = self._pause_s - done_s % self._pause_s if self._pause_s else 0.0

    def stretched(self, call: Any, due_in_s: float) -> float:
        """Return the time until the step to `call`; a step to a later call may run it earlier."""
        # A LoopingCall passes itself to callLater.
        task = getattr(call, "func", None)
        if due_in_s <= 0 or not isinstance(task, LoopingCall) or task.interval is None:
            return due_in_s
        return max(due_in_s, self._rest_s) if task.interval < self._pause_s else due_in_s
