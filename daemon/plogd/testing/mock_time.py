"""Time that a test moves: a reactor whose clock can be set forward, and the way there in steps.

Both clocks of the broker are the reactor's, so that whatever has to do with time moves together:
timers, periodic tasks, sessions, timestamps. Real time goes on meanwhile; moving adds to it.

`MockTime.advance` goes from one due timer to the next, so that each is called at its own moment,
and waits at each for the jobs that follow. It does not wait for clients, whose time is the real
one. Reactor thread only.
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
"""How often a periodic task runs in one `advance` at least, if it is due as often.

A week has 120,000 checkpoints of the high watermarks. Every other timer is called at its moment."""

_ROUNDS_MAX = 10
_LAST_ROUNDS_MAX = 100
"""How often to wait, at one moment and at the last one, for all jobs there are, and then for those
that have followed from them. Clients may cause more all the time."""

_TINY_S = 1e-6
"""Floats: a timer must not be due a moment after the step that goes there."""


def _monotonic_s() -> float:
    """Not time.monotonic: libraries that freeze a test's time replace that."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


class MovableReactor(EPollReactor):
    """A reactor that is `offset_s` ahead of the machine's clock, for one broker.

    Never the global one. It may run in any thread and does not declare that to be Twisted's.
    """

    _registerAsIOThread = False

    def __init__(self, offset_s: float = 0.0) -> None:
        self.offset_s = offset_s
        super().__init__()  # type: ignore[no-untyped-call]

    def seconds(self) -> float:
        """The time all its timers go by."""
        return _monotonic_s() + self.offset_s


class MovableClock:
    """The `Clock` of a broker on a `MovableReactor`."""

    __slots__ = ("_ahead_s", "_reactor")

    def __init__(self, reactor: MovableReactor) -> None:
        self._reactor = reactor
        self._ahead_s = time.clock_gettime(time.CLOCK_REALTIME) - _monotonic_s()

    def now_ms(self) -> int:
        """Wall-clock milliseconds since the epoch, as far ahead as the reactor."""
        return int((self._ahead_s + self._reactor.seconds()) * 1000)

    def monotonic_ms(self) -> float:
        """Milliseconds that only go forward."""
        return self._reactor.seconds() * 1000.0


@dataclass(slots=True)
class _Move:
    """An `advance` that waits or is under way."""

    total_s: float
    remaining_s: float
    done: Later[None]


class MockTime:
    """Moves the time of `reactor`: a MovableReactor, or what a test has for one."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._moves: deque[_Move] = deque()
        self._last_job = 0
        self._jobs: set[int] = set()
        """Those that have not ended."""
        self._awaited: set[int] = set()
        """Those of them that the next step waits for; without any, none does."""
        self._rounds = 0
        """How often this step has waited."""

    def advance(self, seconds: float) -> Later[None]:
        """Let `seconds` pass; done when all that was due has happened."""
        if not 0 <= seconds < math.inf:
            raise ValueError(f"time goes forward: advance_time({seconds})")
        move = _Move(seconds, seconds, Later())
        self._moves.append(move)
        if len(self._moves) == 1:
            self._soon()
        return move.done

    def job_begun(self) -> int:
        """A job was submitted; its number, for `job_ended`."""
        self._last_job += 1
        self._jobs.add(self._last_job)
        return self._last_job

    def job_ended(self, number: int) -> None:
        """What followed from a job has been done."""
        self._jobs.remove(number)
        if number in self._awaited:
            self._awaited.remove(number)
            if not self._awaited:
                self._soon()

    def _soon(self) -> None:
        # Not a timer, which would be one that is due.
        self._reactor.callFromThread(self._step)

    def _step(self) -> None:
        """What is due now is called right after this, by the reactor's same turn."""
        move = self._moves[0]
        rounds_max = _ROUNDS_MAX if move.remaining_s > 0 else _LAST_ROUNDS_MAX
        if self._jobs and self._rounds < rounds_max:
            self._rounds += 1
            self._awaited = set(self._jobs)
            return
        self._rounds = 0
        due_in_s = self._due_in_s(move)
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
        """How long until a timer is due; not positive if one is."""
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
    """For how long frequent periodic tasks rest in a long move: until its next hundredth."""

    def __init__(self, move: _Move) -> None:
        self._pause_s = move.total_s / PERIODIC_RUNS
        done_s = move.total_s - move.remaining_s
        self._rest_s = self._pause_s - done_s % self._pause_s if self._pause_s else 0.0

    def stretched(self, call: Any, due_in_s: float) -> float:
        """When to step to `call`; it is called sooner if another call is stepped to."""
        task = getattr(call, "func", None)
        if due_in_s <= 0 or not isinstance(task, LoopingCall) or task.interval is None:
            return due_in_s
        return max(due_in_s, self._rest_s) if task.interval < self._pause_s else due_in_s
