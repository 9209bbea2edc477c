"""Work on threads: serial lanes over threads of its own, outcomes on the reactor's thread.

For calls that wait outside the interpreter: sync, open, unlink, cold reads, checksums of much
data. A lane is a queue that one thread at a time works off, so its jobs neither overlap nor
overtake; lanes run beside each other as far as there are threads. What must not hold up each other,
such as reads and syncs of one device, has lanes of different names.

Every durable acknowledgement goes through here, so the way to a thread and back is short. A free
thread sleeps on a lock of its own, and the one that slept last is woken, so that no other wakes
with it (a queue they all wait at wakes two). An outcome comes back by an eventfd the reactor
watches, and what follows from all that came at once is one `Turn`.

`submit` may be called on the reactor's thread only. Invariant: a lane is with a thread, or in line
for one, exactly while it holds jobs, and every job's outcome is delivered unless the reactor has
stopped.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from twisted.internet.interfaces import IReadDescriptor
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from plogd.ports import Later, Turn

T = TypeVar("T")
log = Logger()

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


class _Worker:
    """A thread, and how it is told what to do next."""

    __slots__ = ("lane", "may_go_on", "thread")

    def __init__(self, lane: _Lane) -> None:
        self.lane: _Lane | None = lane
        """What to work off; None ends the thread."""
        self.may_go_on = threading.Lock()
        """Held while the thread is free: it waits for it."""
        self.may_go_on.acquire()
        self.thread: threading.Thread


class ThreadJobs:
    """`Jobs` over at most `max_threads` threads, which are started as they are needed.

    `reactor` is Any: what Twisted's type for it is lacks most of what it does. The switch interval
    is that of the whole process; None leaves it as it is.
    """

    def __init__(
        self,
        reactor: Any,
        turn: Turn,
        max_threads: int = 16,
        *,
        switch_interval_s: float | None = SWITCH_INTERVAL_S,
    ) -> None:
        if switch_interval_s is not None:
            sys.setswitchinterval(switch_interval_s)
        self._reactor = reactor
        self._max_threads = max_threads
        self._workers: list[_Worker] = []
        self._lanes: dict[str, _Lane] = {}
        self._lock = threading.Lock()
        """Guards the lanes and the next two."""
        self._free: list[_Worker] = []
        self._in_line: deque[_Lane] = deque()
        """Lanes for the next free thread; empty while there is one."""
        self._outcomes = _Outcomes(turn)
        reactor.addReader(self._outcomes)
        self._is_closed = False

    def submit(self, lane: str, function: Callable[[], T]) -> Later[T]:
        """Run `function` on a thread after the lane's earlier jobs; a Later of its outcome.

        Fails with JobsClosed after `close`, and with RuntimeError if there is no thread at all.
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
            worker = self._free.pop() if self._free else None
            if worker is None and len(self._workers) == self._max_threads:
                self._in_line.append(found)
                return later
        if worker is None:
            try:
                self._start_thread(found)
            except (RuntimeError, MemoryError) as error:
                self._do_without(found, error)
        else:
            worker.lane = found
            worker.may_go_on.release()
        return later

    def _do_without(self, lane: _Lane, error: Exception) -> None:
        """The system has no thread more: leave `lane` to those there are, or fail its jobs."""
        jobs: list[_Job] = []
        with self._lock:
            worker = self._free.pop() if self._free else None
            if worker is None and self._workers:
                self._in_line.append(lane)
            elif worker is None:
                jobs, lane.is_busy = list(lane.jobs), False
                lane.jobs.clear()
        if worker is not None:
            worker.lane = lane
            worker.may_go_on.release()
        for _, later in jobs:
            later.fail(error)

    def close(self) -> None:
        """Take no more jobs and wait until those submitted are done; blocks the caller.

        Their outcomes are delivered when the reactor goes on.
        """
        if self._is_closed:
            return
        with self._lock:
            self._is_closed = True
            free, self._free = self._free, []
        for worker in free:
            worker.lane = None
            worker.may_go_on.release()
        for worker in self._workers:
            worker.thread.join()
        self._reactor.removeReader(self._outcomes)
        self._outcomes.close()
        self._reactor.callLater(0, self._outcomes.deliver)

    def _start_thread(self, lane: _Lane) -> None:
        worker = _Worker(lane)
        name = f"plog-jobs-{len(self._workers)}"
        worker.thread = threading.Thread(target=self._work, args=[worker], name=name, daemon=True)
        worker.thread.start()
        self._workers.append(worker)

    # -- on the threads -----------------------------------------------------------------------

    def _work(self, worker: _Worker) -> None:
        while worker.lane is not None:
            if self._work_off(worker, worker.lane):
                worker.may_go_on.acquire()

    def _work_off(self, worker: _Worker, lane: _Lane) -> bool:
        """Run one job after the other until there is none; whether the thread is free then.

        The last outcome is told after that: whoever hears of it may find this thread for more.
        """
        jobs, tell = lane.jobs, self._outcomes.tell
        while True:
            function, later = jobs.popleft()
            outcome = _run(function, later)
            with self._lock:
                if not jobs:
                    lane.is_busy = False
                    is_free = self._find_work(worker)
                    break
            tell(outcome)
        tell(outcome)
        return is_free

    def _find_work(self, worker: _Worker) -> bool:
        """The next lane in line, or the end; True if the thread is to wait for either."""
        if self._in_line:
            worker.lane = self._in_line.popleft()
        elif self._is_closed:
            worker.lane = None
        else:
            self._free.append(worker)
            return True
        return False


@implementer(IReadDescriptor)
class _Outcomes:
    """What the threads have done and the reactor's thread has not heard of."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._waiting: deque[Callable[[], None]] = deque()
        self._has_woken = False
        """Whether the reactor has been woken, and has not looked yet."""
        self._fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def tell(self, outcome: Callable[[], None]) -> None:
        """Have `outcome` called on the reactor's thread. The one method for other threads."""
        self._waiting.append(outcome)
        if not self._has_woken:
            self._has_woken = True
            os.eventfd_write(self._fd, 1)

    def deliver(self) -> None:
        """Call all there are, and then what follows from them."""
        try:
            with self._turn:
                while self._waiting:
                    try:
                        self._waiting.popleft()()
                    except Exception:
                        log.failure("what follows a job failed")
        except Exception:
            log.failure("work deferred to the end of a turn failed")

    def close(self) -> None:
        """Let go of the descriptor; no thread is left."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    # What follows is IReadDescriptor, for the reactor.

    def fileno(self) -> int:
        """The descriptor to watch."""
        return self._fd

    def logPrefix(self) -> str:
        """What Twisted calls us in its log."""
        return "jobs"

    def doRead(self) -> None:
        """A thread has told something."""
        os.eventfd_read(self._fd)
        # Only now: who tells from here on wakes the reactor again.
        self._has_woken = False
        self.deliver()

    def connectionLost(self, reason: Failure) -> None:
        """The reactor stops; `close` does the rest."""


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
