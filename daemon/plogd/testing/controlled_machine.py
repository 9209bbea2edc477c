"""The ports of a test broker: movable time, jobs and files that can be abandoned, and hooks.

`ControlledMachine` replaces `Machine` (machine.py) for both kinds of test brokers: in a thread
(broker_thread.py) and in a process (controlled_main.py). The broker itself is unchanged.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from plogd.machine import Machine
from plogd.net.thread_jobs import JobsClosed, ThreadJobs
from plogd.os_files import OsFile, OsFiles
from plogd.ports import File, Later, Turn
from plogd.testing.hooked_dispatch import HookedDispatch
from plogd.testing.mock_time import MockTime, MovableClock, MovableReactor

if TYPE_CHECKING:
    from plogd.broker import Broker
    from plogd.net.request_queue import Dispatch
    from plogd.testing.cuttable_peers import CuttablePeers

T = TypeVar("T")


class ControlledMachine(Machine):
    """The ports of one test broker; `switch_interval_s` is passed to `ThreadJobs`."""

    def __init__(self, reactor: MovableReactor, *, switch_interval_s: float | None) -> None:
        super().__init__(reactor, HeldFiles())
        self.clock = MovableClock(reactor)
        self.time = MockTime(reactor)
        self.jobs: CountedJobs | None = None
        self.requests: HookedDispatch | None = None
        self.peers: CuttablePeers | None = None
        """The connections to other brokers, for a broker of a `RunningCluster`."""
        self._switch_interval_s = switch_interval_s

    def make_jobs(self) -> ThreadJobs:
        """Return threads whose jobs are counted."""
        self.jobs = CountedJobs(self.reactor, self.turn, self.time, self._switch_interval_s)
        return self.jobs

    def dispatch_of(self, broker: Broker) -> Dispatch:
        """Return the broker's dispatcher, wrapped in the hooks of tests."""
        self.requests = HookedDispatch(broker, super().dispatch_of(broker), self.timers)
        return self.requests

    def end(self) -> None:
        """Release what the end of the process would release, after the broker has ended."""


class CountedJobs(ThreadJobs):
    """Threads for jobs that `time` waits for, and that can be abandoned before they start."""

    def __init__(
        self, reactor: MovableReactor, turn: Turn, time: MockTime, switch_interval_s: float | None
    ) -> None:
        super().__init__(reactor, turn, switch_interval_s=switch_interval_s)
        self._time = time
        self._is_abandoned = False

    def submit(self, lane: str, function: Callable[[], T]) -> Later[T]:
        """Run `function` as `ThreadJobs.submit` does, and count the job until it ends."""
        # Before it is submitted, because the job may end immediately.
        number = self._time.job_begun()

        def run() -> T:
            if self._is_abandoned:
                raise JobsClosed("the broker was killed")
            return function()

        later = super().submit(lane, run)
        counted: Later[T] = Later(later.cancel)

        def on_value(value: T) -> None:
            # The job ends only after its outcome has been handled, because that may submit further
            # jobs.
            try:
                counted.succeed(value)
            # Even if a callback fails: otherwise, `MockTime.advance` would wait forever.
            finally:
                self._time.job_ended(number)

        def on_error(error: Exception) -> None:
            try:
                counted.fail(error)
            finally:
                self._time.job_ended(number)

        later.then(on_value, on_error)
        return counted

    def abandon(self) -> None:
        """Stop starting jobs, as if the process had been killed; running jobs finish."""
        self._is_abandoned = True


class HeldFiles(OsFiles):
    """Files that are closed with the broker even if still in use, as when a process ends."""

    def __init__(self) -> None:
        super().__init__()
        self._open: set[_HeldFile] = set()
        self._locks: dict[int, Callable[[], None]] = {}

    def open_append(self, path: str) -> File:
        """Open for append and read; create an empty file if it is missing."""
        return _HeldFile(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, self._open)

    def open_existing(self, path: str) -> File:
        """Open like `open_append`, but raise FileNotFoundError if the file is missing."""
        return _HeldFile(path, os.O_RDWR | os.O_APPEND, self._open)

    def open_read(self, path: str) -> File:
        """Open for reading. Raises FileNotFoundError."""
        return _HeldFile(path, os.O_RDONLY, self._open)

    def lock(self, path: str) -> Callable[[], None]:
        """Lock `path` exclusively, as `OsFiles` does; the returned function unlocks it once."""
        # Kept, because a killed broker does not unlock its directories, but the next one needs
        # them.
        release = super().lock(path)
        number = id(release)
        self._locks[number] = release

        def release_once() -> None:
            if self._locks.pop(number, None) is not None:
                release()

        return release_once

    def close(self) -> None:
        """Close all files and locks; call this after all threads have stopped using them."""
        for file in list(self._open):
            file.close_now()
        for number in list(self._locks):
            self._locks.pop(number)()
        super().close()


class _HeldFile(OsFile):
    """An open file that its `HeldFiles` can close."""

    __slots__ = ("_among",)

    def __init__(self, path: str, flags: int, among: set[_HeldFile]) -> None:
        super().__init__(path, flags)
        self._among = among
        among.add(self)

    def close(self) -> None:
        """Release one holder; has no effect after `close_now`."""
        # A broker that was killed may close its files after the test has closed them.
        if self._fd >= 0:
            super().close()
        if self._fd < 0:
            self._among.discard(self)

    def close_now(self) -> None:
        """Close the descriptor even if the file has holders."""
        # Without a lock, because after a fork, a thread that does not exist in the child may hold
        # it.
        self._fd = -1
        self._among.discard(self)
