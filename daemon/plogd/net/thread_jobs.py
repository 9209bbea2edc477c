"""Run jobs on threads, in serial lanes, and deliver their outcomes on the reactor's thread.

Jobs are calls that block outside the interpreter: sync, open, unlink, cold reads, checksums of
large data. A lane is a queue that one thread at a time serves, so its jobs run in order and never
overlap; different lanes run concurrently if there are enough threads. Jobs that must not delay each
other, such as reads and syncs of one device, use different lanes.

Every durable acknowledgment waits for a job, so passing a job to a thread must be fast. Outcomes
return through an eventfd that the reactor watches, and all outcomes delivered together share one
`Turn`. A busy reactor pauses for the threads (`_Pauses`).

`submit` may be called only on the reactor's thread. Invariant: a lane is served by a thread, or
queued for one, exactly while it has jobs; every job's outcome is delivered unless the reactor has
stopped.
"""

from __future__ import annotations

import os
import sys
import threading
import time
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
"""Time that a woken thread waits for the interpreter lock while the reactor is busy. Python's
default of 5 ms would add to every sync, and so to every acknowledgment."""
FIRST_PAUSE_S = 0.001
LONGEST_PAUSE_INTERVAL_S = 0.064
"""At this interval, pauses of 50 µs take less than 0.1 % of the reactor's time."""
_PAUSE_S = 1e-6
"""Any sleep releases the lock for about 50 µs, the kernel's timer slack; sleep(0) may return
immediately."""

_Job = tuple[Callable[[], Any], Later[Any]]


class JobsClosed(RuntimeError):
    """Raised for jobs submitted after the broker has stopped."""


class _Lane:
    """The queued jobs of one lane."""

    __slots__ = ("is_busy", "jobs")

    def __init__(self) -> None:
        self.jobs: deque[_Job] = deque()
        self.is_busy = False
        """Whether a thread serves the lane, or the lane is queued for one."""


class _Worker:
    """A thread and the lane assigned to it."""

    __slots__ = ("lane", "thread", "wakeup")

    def __init__(self, lane: _Lane) -> None:
        self.lane: _Lane | None = lane
        """The lane to serve; None ends the thread."""
        self.wakeup = threading.Lock()
        """A free thread waits to acquire this lock; releasing it wakes the thread."""
        self.wakeup.acquire()
        self.thread: threading.Thread


class ThreadJobs:
    """`Jobs` on at most `max_threads` threads, which are started when needed.

    The switch interval applies to the whole process; None keeps it unchanged.
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
        # `reactor` is Any because Twisted's type for it lacks most of its methods.
        self._reactor = reactor
        self._max_threads = max_threads
        self._workers: list[_Worker] = []
        self._lanes: dict[str, _Lane] = {}
        self._lock = threading.Lock()
        """Guards the lanes, `_free` and `_queued_lanes`."""
        self._free: list[_Worker] = []
        self._queued_lanes: deque[_Lane] = deque()
        """Lanes that wait for a thread; empty while a thread is free."""
        self._outcomes = _Outcomes(turn)
        reactor.addReader(self._outcomes)
        self._pauses = _Pauses(reactor, self._has_running_jobs)
        self._is_closed = False

    def submit(self, lane: str, function: Callable[[], T]) -> Later[T]:
        """Run `function` on a thread after the lane's earlier jobs; return a Later.

        The Later fails with JobsClosed after `close`, and with RuntimeError if no thread can be
        started and none exists.
        """
        later: Later[T] = Later()
        if self._is_closed:
            later.fail(JobsClosed(f"cannot run a job on {lane}: the broker has stopped"))
            return later
        found = self._lanes.get(lane)
        if found is None:
            # Lanes are never removed, because there are only a few for each log directory and
            # device.
            found = self._lanes[lane] = _Lane()
        with self._lock:
            found.jobs.append((function, later))
            if found.is_busy:
                return later
            found.is_busy = True
            # The thread that became free last is woken through its own lock: a queue shared by all
            # free threads would wake two of them for each job.
            worker = self._free.pop() if self._free else None
            if worker is None and len(self._workers) == self._max_threads:
                self._queued_lanes.append(found)
                return later
        self._pauses.begin()
        if worker is None:
            try:
                self._start_thread(found)
            except (RuntimeError, MemoryError) as error:
                self._use_existing_threads(found, error)
        else:
            worker.lane = found
            worker.wakeup.release()
        return later

    def _has_running_jobs(self) -> bool:
        # No lock is needed: only this thread hands out jobs, so if the answer is outdated, the jobs
        # have just ended.
        return len(self._free) < len(self._workers)

    def _use_existing_threads(self, lane: _Lane, error: Exception) -> None:
        """Leave `lane` to the existing threads after a thread failed to start.

        If there are no threads, fail its jobs.
        """
        jobs: list[_Job] = []
        with self._lock:
            worker = self._free.pop() if self._free else None
            if worker is None and self._workers:
                self._queued_lanes.append(lane)
            elif worker is None:
                jobs, lane.is_busy = list(lane.jobs), False
                lane.jobs.clear()
        if worker is not None:
            worker.lane = lane
            worker.wakeup.release()
        for _, later in jobs:
            later.fail(error)

    def close(self) -> None:
        """Stop accepting jobs, and block until all submitted jobs are done.

        Their outcomes are delivered in the reactor's next pass.
        """
        if self._is_closed:
            return
        with self._lock:
            self._is_closed = True
            free, self._free = self._free, []
        self._pauses.end()
        for worker in free:
            worker.lane = None
            worker.wakeup.release()
        for worker in self._workers:
            worker.thread.join()
        self._reactor.removeReader(self._outcomes)
        self._outcomes.close()
        self._reactor.callLater(0, self._outcomes.deliver)

    def _start_thread(self, lane: _Lane) -> None:
        worker = _Worker(lane)
        name = f"plog-jobs-{len(self._workers)}"
        # A daemon, so that a hung disk does not keep the process alive if `close` is never called.
        worker.thread = threading.Thread(target=self._work, args=[worker], name=name, daemon=True)
        worker.thread.start()
        # Added only after the start, which fails if the system has no thread left.
        self._workers.append(worker)

    # -- on the threads -----------------------------------------------------------------------

    def _work(self, worker: _Worker) -> None:
        while worker.lane is not None:
            if self._serve(worker, worker.lane):
                worker.wakeup.acquire()

    def _serve(self, worker: _Worker, lane: _Lane) -> bool:
        """Run the lane's jobs until none are left; return whether the thread is free afterward."""
        jobs, post = lane.jobs, self._outcomes.post
        while True:
            function, later = jobs.popleft()
            outcome = _run(function, later)
            with self._lock:
                if not jobs:
                    lane.is_busy = False
                    is_free = self._find_work(worker)
                    break
            post(outcome)
        # After the thread has become free, so that a job submitted in response can use it.
        post(outcome)
        return is_free

    def _find_work(self, worker: _Worker) -> bool:
        """Assign the next lane, or None to end the thread; return whether the thread is free."""
        if self._queued_lanes:
            worker.lane = self._queued_lanes.popleft()
        elif self._is_closed:
            worker.lane = None
        else:
            self._free.append(worker)
            return True
        return False


class _Pauses:
    """Short sleeps of the reactor, so that threads with jobs get the interpreter lock.

    A waiting thread requests the lock only if it was not released for a whole switch interval. A
    busy reactor releases the lock in each system call, several times per interval, and takes it
    back before the thread wakes. Without pauses, the thread would wait for 100 ms or more.
    """

    def __init__(self, reactor: Any, has_running_jobs: Callable[[], bool]) -> None:
        self._reactor = reactor
        self._has_running_jobs = has_running_jobs
        self._interval_s = FIRST_PAUSE_S
        self._next: Any = None

    def begin(self) -> None:
        """Start pausing while jobs run; the first pause begins after a millisecond."""
        self._interval_s = FIRST_PAUSE_S
        if self._next is None:
            self._next = self._reactor.callLater(FIRST_PAUSE_S, self._pause)

    def end(self) -> None:
        """Stop pausing."""
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def _pause(self) -> None:
        self._next = None
        if self._has_running_jobs():
            time.sleep(_PAUSE_S)
            # The intervals double, because most jobs end soon, and a long job spends most of its
            # time outside the interpreter.
            self._interval_s = min(2 * self._interval_s, LONGEST_PAUSE_INTERVAL_S)
            self._next = self._reactor.callLater(self._interval_s, self._pause)


@implementer(IReadDescriptor)
class _Outcomes:
    """Outcomes of jobs that are not yet delivered on the reactor's thread."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._waiting: deque[Callable[[], None]] = deque()
        self._has_woken = False
        """Whether the eventfd has been written and not read since."""
        self._fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def post(self, outcome: Callable[[], None]) -> None:
        """Call `outcome` on the reactor's thread. Other threads may call only this method."""
        # deque.append is atomic, so no lock is needed.
        self._waiting.append(outcome)
        if not self._has_woken:
            self._has_woken = True
            os.eventfd_write(self._fd, 1)

    def deliver(self) -> None:
        """Call all posted outcomes, and then the calls that they defer to the end of the turn."""
        try:
            with self._turn:
                while self._waiting:
                    try:
                        self._waiting.popleft()()
                    except Exception:
                        # The other outcomes belong to other requests and are still delivered.
                        log.failure("a callback of a job failed")
        except Exception:
            log.failure("a call deferred to the end of a turn failed")

    def close(self) -> None:
        """Close the eventfd after all threads have ended."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    # The following methods implement IReadDescriptor for the reactor.

    def fileno(self) -> int:
        """Return the eventfd."""
        return self._fd

    def logPrefix(self) -> str:
        """Return the name for Twisted's log lines."""
        return "jobs"

    def doRead(self) -> None:
        """Deliver the outcomes that the threads have posted."""
        os.eventfd_read(self._fd)
        # Reset after the read, so that outcomes posted from now on wake the reactor again.
        self._has_woken = False
        self.deliver()

    def connectionLost(self, reason: Failure) -> None:
        """Do nothing when the reactor stops; `close` releases the descriptor."""


def _run(function: Callable[[], T], later: Later[T]) -> Callable[[], None]:
    """Call `function` and return a function that delivers its outcome."""
    try:
        value = function()
    except Exception as error:
        reason: Exception = error
    except BaseException as error:  # SystemExit would end only this thread: fail the job instead.
        reason = RuntimeError(f"a job was terminated by {error!r}")
    else:
        return lambda: later.succeed(value)
    return lambda: later.fail(reason)
