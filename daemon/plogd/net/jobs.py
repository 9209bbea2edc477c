"""Work on threads: serial lanes over a pool of its own, outcomes on the reactor's thread.

For calls that wait outside the interpreter: sync, open, unlink, cold reads, checksums of much
data. A lane is a queue that one thread at a time works off, so its jobs neither overlap nor
overtake; lanes run beside each other as far as there are threads. What must not hold up each other,
such as reads and syncs of one device, has lanes of different names.

`submit` may be called on the reactor's thread only; jobs run on the pool's. Invariant: a lane is
with a thread exactly while it holds jobs, and every job's outcome is delivered unless the reactor
has stopped.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from twisted.internet.interfaces import IReactorFromThreads
from twisted.python.threadpool import ThreadPool

from plogd.ports import Later

T = TypeVar("T")

SWITCH_INTERVAL_S = 0.0005
"""How long a thread that was woken waits for the interpreter while the reactor is busy. Python's
own 5 ms would be on top of every sync, and so of every acknowledgement."""


class JobsClosed(RuntimeError):
    """The broker has stopped: no job is taken any more."""


class ThreadJobs:
    """`Jobs` over at most `max_threads` threads, which are started as they are needed."""

    def __init__(self, reactor: IReactorFromThreads, max_threads: int = 16) -> None:
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        self._reactor = reactor
        self._pool = ThreadPool(minthreads=0, maxthreads=max_threads, name="plog-jobs")
        self._pool.start()
        self._lanes: dict[str, _Lane] = {}
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
            found = self._lanes[lane] = _Lane(self._reactor)
        if found.add(function, later):
            self._pool.callInThread(found.work_off)
        return later

    def close(self) -> None:
        """Take no more jobs and wait until those submitted are done; blocks the caller.

        Their outcomes are delivered when the reactor goes on.
        """
        if not self._is_closed:
            self._is_closed = True
            self._pool.stop()


class _Lane:
    """The jobs of one lane, shared between the reactor's thread and the one that works them off."""

    __slots__ = ("_has_thread", "_jobs", "_lock", "_reactor")

    def __init__(self, reactor: IReactorFromThreads) -> None:
        self._reactor = reactor
        self._lock = threading.Lock()
        self._jobs: deque[tuple[Callable[[], Any], Later[Any]]] = deque()
        self._has_thread = False

    def add(self, function: Callable[[], T], later: Later[T]) -> bool:
        """Queue a job; whether a thread has to be found for the lane."""
        with self._lock:
            self._jobs.append((function, later))
            needs_thread = not self._has_thread
            self._has_thread = True
        return needs_thread

    def work_off(self) -> None:
        """Run one job after the other, on a thread of the pool, until there is none."""
        while True:
            with self._lock:
                if not self._jobs:
                    self._has_thread = False
                    return
                function, later = self._jobs.popleft()
            self._reactor.callFromThread(_run(function, later))


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
