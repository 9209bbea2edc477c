"""Jobs that may never finish, each on its own thread, for which a shutdown does not wait.

They are for rare work that the broker can do without: reading settings and certificates from a file
system that may hang, and resolving names. Work on the broker's data uses thread_jobs.py, which
waits for its threads. Reactor thread only; created by service.py.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from plogd.ports import Later

T = TypeVar("T")


class StillRunning(OSError):
    """Raised while an earlier job with the same name is overdue."""


class _Job(NamedTuple):
    """A job: its function, the Later for its outcome, and its timeout."""

    function: Callable[[], Any]
    later: Later[Any]
    timeout_s: float


class _Lane:
    """The jobs with one name, which run sequentially."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_running = self.is_overdue = False
        self.waiting: deque[_Job] = deque()


class DetachedJobs:
    """Runs jobs whose timeout does not end the thread. `reactor` is Any as in thread_jobs.py."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._lanes: dict[str, _Lane] = {}
        self._is_closed = False

    def run(self, name: str, function: Callable[[], T], timeout_s: float) -> Later[T]:
        """Run `function` on a thread after earlier jobs with this name; return a Later.

        The Later fails with TimeoutError after `timeout_s`. The thread keeps running, and until it
        ends, further jobs with this name fail with StillRunning, to limit the number of threads.
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
        """Stop delivering outcomes."""
        self._is_closed = True

    def _start_next(self, lane: _Lane) -> None:
        job = lane.waiting.popleft()
        lane.is_running = True
        late = self._reactor.callLater(job.timeout_s, self._overdue, lane, job)

        def ended(deliver: Callable[[], None]) -> None:
            was_overdue = lane.is_overdue
            # An overdue job has failed already. Its thread has ended now, so the lane can run the
            # next job.
            lane.is_running = lane.is_overdue = False
            try:
                if not was_overdue:
                    late.cancel()
                    deliver()
            finally:
                # `deliver` may already have started the next job.
                if lane.waiting and not lane.is_running:
                    self._start_next(lane)

        def work() -> None:
            try:
                value = job.function()
            except Exception as error:
                reason = error
                self._post(ended, lambda: job.later.fail(reason))
            else:
                self._post(ended, lambda: job.later.succeed(value))

        # A daemon thread does not keep the process alive if its job hangs.
        threading.Thread(target=work, name=f"plog-{lane.name}", daemon=True).start()

    def _post(
        self, ended: Callable[[Callable[[], None]], None], deliver: Callable[[], None]
    ) -> None:
        """Deliver an outcome on the reactor's thread; called on the job's thread."""
        if not self._is_closed:
            # After `close`, the reactor may have stopped, and nothing would run the call.
            self._reactor.callFromThread(ended, deliver)

    def _overdue(self, lane: _Lane, job: _Job) -> None:
        if not self._is_closed:
            lane.is_overdue = True
            problem = f"{lane.name} did not finish within {job.timeout_s:g} s"
            # With an error number, because only then `strerror` contains the text, which callers
            # print.
            job.later.fail(TimeoutError(0, problem))
            self._refuse_waiting(lane)

    def _refuse_waiting(self, lane: _Lane) -> None:
        while lane.waiting:
            problem = f"{lane.name}: an earlier attempt has not finished yet"
            lane.waiting.popleft().later.fail(StillRunning(0, problem))
