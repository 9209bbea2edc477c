"""Work on threads: serial lanes over threads of its own, outcomes on the reactor's thread.

For calls that wait outside the interpreter: sync, open, unlink, cold reads, checksums of much
data. A lane is a queue that one thread at a time works off, so its jobs neither overlap nor
overtake; lanes run beside each other as far as there are threads. What must not hold up each other,
such as reads and syncs of one device, has lanes of different names.

Every durable acknowledgement goes through here, so the way to a thread and back is short: a queue
in C wakes the thread, which does nothing more once it has told the reactor (Twisted's own pool
takes five times the interpreter's time).

`submit` may be called on the reactor's thread only. Invariant: a lane is with a thread, or in line
for one, exactly while it holds jobs, and every job's outcome is delivered unless the reactor has
stopped.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

from twisted.internet.interfaces import IReactorFromThreads

from plogd.ports import Later

T = TypeVar("T")

SWITCH_INTERVAL_S = 0.0005
"""How long a thread that was woken waits for the interpreter while the reactor is busy. Python's
own 5 ms would be on top of every sync, and so of every acknowledgement."""

_Job = tuple[Callable[[], Any], Later[Any]]


class JobsClosed(RuntimeError):
    """The broker has stopped: no job is taken any more."""


class _Lane:
    """The jobs of one lane that wait."""

    __slots__ = ("is_busy", "jobs")

    def __init__(self) -> None:
        self.jobs: deque[_Job] = deque()
        self.is_busy = False
        """Whether a thread has it, or will."""


class ThreadJobs:
    """`Jobs` over at most `max_threads` threads, which are started as they are needed."""

    def __init__(self, reactor: IReactorFromThreads, max_threads: int = 16) -> None:
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        self._reactor = reactor
        self._max_threads = max_threads
        self._threads: list[threading.Thread] = []
        self._lanes: dict[str, _Lane] = {}
        self._in_line: SimpleQueue[_Lane | None] = SimpleQueue()
        """Lanes for the next free thread; None is a thread's end."""
        self._lock = threading.Lock()
        """Guards the lanes and the next."""
        self._free_threads = 0
        """Those that wait for a lane, less those a lane is in line for."""
        self._is_closed = False

    def submit(self, lane: str, function: Callable[[], T]) -> Later[T]:
        """Run `function` on a thread after the lane's earlier jobs; a Later of its outcome.

        Fails with JobsClosed after `close`.
        """
        later: Later[T] = Later()
        if self._is_closed:
            later.fail(JobsClosed(f"too late for a job on {lane}"))
            return later
        found = self._lanes.get(lane)
        if found is None:
            found = self._lanes[lane] = _Lane()
        with self._lock:
            found.jobs.append((function, later))
            if found.is_busy:
                return later
            found.is_busy = True
            needs_thread = self._free_threads == 0
            if not needs_thread:
                self._free_threads -= 1
        if needs_thread and len(self._threads) < self._max_threads:
            self._start_thread()
        self._in_line.put(found)
        return later

    def close(self) -> None:
        """Take no more jobs and wait until those submitted are done; blocks the caller.

        Their outcomes are delivered when the reactor goes on.
        """
        if not self._is_closed:
            self._is_closed = True
            for _ in self._threads:
                self._in_line.put(None)
            for thread in self._threads:
                thread.join()

    def _start_thread(self) -> None:
        name = f"plog-jobs-{len(self._threads)}"
        thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    # -- on the threads -----------------------------------------------------------------------

    def _work(self) -> None:
        while (lane := self._in_line.get()) is not None:
            self._work_off(lane)

    def _work_off(self, lane: _Lane) -> None:
        """Run one job after the other until there is none."""
        jobs, tell = lane.jobs, self._reactor.callFromThread
        while True:
            function, later = jobs.popleft()
            outcome = _run(function, later)
            with self._lock:
                if not jobs:
                    lane.is_busy = False
                    self._free_threads += 1
                    break
            tell(outcome)
        tell(outcome)


def _run(function: Callable[[], T], later: Later[T]) -> Callable[[], None]:
    """Call `function`; what to do with its outcome on the reactor's thread."""
    try:
        value = function()
    except Exception as error:
        reason: Exception = error
    except BaseException as error:  # An exit cannot leave this thread; whoever waits must hear.
        reason = RuntimeError(f"a job ended by {error!r}")
    else:
        return lambda: later.succeed(value)
    return lambda: later.fail(reason)
