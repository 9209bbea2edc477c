"""Jobs that may never end, each on a thread of its own, which a stop does not wait for.

For what the broker does seldom and can do without: settings and certificates on a file system that
hangs, names that no server resolves. The broker's own data goes through thread_jobs.py, whose
threads are waited for. Reactor thread only; service.py makes the one there is.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from plogd.ports import Later

T = TypeVar("T")


class StillRunning(OSError):
    """An earlier job of the same name does not end."""


class _Job(NamedTuple):
    """What to run, where its outcome goes, and how long it may take."""

    function: Callable[[], Any]
    later: Later[Any]
    timeout_s: float


class _Lane:
    """The jobs of one name, which run sequentially."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_running = self.is_overdue = False
        self.waiting: deque[_Job] = deque()


class DetachedJobs:
    """Threads without a bound on their time; `reactor` is Any as in thread_jobs.py."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._lanes: dict[str, _Lane] = {}
        self._is_closed = False

    def run(self, name: str, function: Callable[[], T], timeout_s: float) -> Later[T]:
        """Run `function` on a thread, after earlier jobs of that name; a Later of its outcome.

        Fails with TimeoutError when it has run for `timeout_s`. Its thread goes on, and until that
        has ended, further jobs of that name fail with StillRunning, because threads are not free.
        """
        later: Later[T] = Later()
        lane = self._lanes.setdefault(name, _Lane(name))
        lane.waiting.append(_Job(function, later, timeout_s))
        if lane.is_overdue:
            self._refuse_waiting(lane)
        elif not lane.is_running:
            self._start_next(lane)
        return later

    def close(self) -> None:
        """Deliver no further outcome."""
        self._is_closed = True

    def _start_next(self, lane: _Lane) -> None:
        job = lane.waiting.popleft()
        lane.is_running = True
        late = self._reactor.callLater(job.timeout_s, self._overdue, lane, job)

        def ended(deliver: Callable[[], None]) -> None:
            was_overdue = lane.is_overdue
            lane.is_running = lane.is_overdue = False
            try:
                if not was_overdue:
                    late.cancel()
                    deliver()
            finally:
                if lane.waiting and not lane.is_running:
                    self._start_next(lane)

        def work() -> None:
            try:
                value = job.function()
            except Exception as error:
                reason = error
                self._tell(ended, lambda: job.later.fail(reason))
            else:
                self._tell(ended, lambda: job.later.succeed(value))

        threading.Thread(target=work, name=f"plog-{lane.name}", daemon=True).start()

    def _tell(
        self, ended: Callable[[Callable[[], None]], None], deliver: Callable[[], None]
    ) -> None:
        """On the thread of a job: have its outcome delivered."""
        if not self._is_closed:
            self._reactor.callFromThread(ended, deliver)

    def _overdue(self, lane: _Lane, job: _Job) -> None:
        if not self._is_closed:
            lane.is_overdue = True
            what = f"{lane.name} did not end within {job.timeout_s:g} s"
            job.later.fail(TimeoutError(0, what))
            self._refuse_waiting(lane)

    def _refuse_waiting(self, lane: _Lane) -> None:
        while lane.waiting:
            what = f"an earlier {lane.name} has not finished yet"
            lane.waiting.popleft().later.fail(StillRunning(0, what))
