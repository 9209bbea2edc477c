"""Jobs that take time: each lane is a separate thread, and durations are random.

A job's function runs at one moment and its result arrives later. Anything may happen in between:
appends, responses, other lanes' jobs, the end of the process. Results arrive in the order in which
the jobs ended, as calls from threads to a reactor do. Some lanes are slower than others for a whole
life of the process, so that, for example, sealing a segment completes long after a sync.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from plogd.log.disk.bound_call import bind
from plogd.ports import Later, Timers

T = TypeVar("T")


class SlowJobs:
    """The Jobs port of one process. `max_ms` bounds the duration of a job and may change."""

    def __init__(self, timers: Timers, chance: random.Random, max_ms: float) -> None:
        self.max_ms = max_ms
        self.submitted = 0
        self.lane_ms: dict[str, float] = {}
        """How long a job takes on the lanes of a slow directory."""
        self.is_running = False
        """Whether the code that is running now is part of a job's thread."""
        self._timers = timers
        self._chance = chance
        self._lanes: dict[str, deque[Callable[[], Callable[[], None]]]] = {}
        self._slowness: dict[str, float] = {}
        self._outcomes: deque[Callable[[], None]] = deque()

    def submit(self, lane: str, function: Callable[[], T]) -> Later[T]:
        """Run `function` after the lane's earlier jobs."""
        later: Later[T] = Later()
        self.submitted += 1

        def run() -> Callable[[], None]:
            self.is_running = True
            try:
                result = function()
            except Exception as error:
                return bind(later.fail, error)
            else:
                return bind(later.succeed, result)
            finally:
                self.is_running = False

        jobs = self._lanes.setdefault(lane, deque())
        jobs.append(run)
        if len(jobs) == 1:
            self._start(lane)
        return later

    @property
    def is_idle(self) -> bool:
        """Whether no job is queued or running, and every result has been delivered."""
        return not self._outcomes and not any(self._lanes.values())

    def _start(self, lane: str) -> None:
        slowness = self._slowness.get(lane)
        if slowness is None:
            slowness = self._slowness[lane] = self._chance.choice((0.2, 1.0, 1.0, 10.0))
        before_ms, after_ms = self._delay_ms() * slowness, 0.0
        if lane in self.lane_ms:
            before_ms += self.lane_ms[lane]
            if self._chance.random() < 0.5:
                before_ms, after_ms = after_ms, before_ms
        self._timers.call_later(before_ms, lambda: self._run(lane, after_ms))

    def _run(self, lane: str, after_ms: float) -> None:
        """Run the function now, in one step; the job ends later."""
        tell = self._lanes[lane][0]()
        if after_ms:
            self._timers.call_later(after_ms, lambda: self._end(lane, tell))
        else:
            self._end(lane, tell)

    def _end(self, lane: str, tell: Callable[[], None]) -> None:
        self._outcomes.append(tell)
        # Timers with equal delays fire in order; a different delay for each would reorder the
        # results.
        self._timers.call_later(self._outcome_delay_ms(), self._deliver_next)
        jobs = self._lanes[lane]
        jobs.popleft()
        if jobs:
            self._start(lane)

    def _deliver_next(self) -> None:
        if self._outcomes:
            self._outcomes.popleft()()

    def _delay_ms(self) -> float:
        return self._chance.random() ** 2 * self.max_ms

    def _outcome_delay_ms(self) -> float:
        return self._chance.choice((0.0, 0.0, 0.1, self._delay_ms() / 2))
