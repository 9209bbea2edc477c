"""Look-ups by time that wait for a thread: a lane of their own for each log directory.

A look-up may read cold data and walk through a million records, so it runs in slices of a few
milliseconds. A few look-ups take turns, so that a short one need not wait for the end of a long
one; the rest queue behind them, as each may hold a decompressed batch. Seals, deletions and the
appends of a slow disk run on other lanes.

A look-up whose client has left is dropped from the queue, or ends at its next step. Called on the
reactor's thread; the look-ups themselves are log/time_lookup.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice

from plog.errors import KafkaStorageError
from plogd.log.log import Log
from plogd.log.time_index import TimestampAndOffset
from plogd.log.time_lookup import Steps
from plogd.ports import Jobs, Later

Found = TimestampAndOffset | None

STARTED_AT_ONCE = 4
"""Look-ups in one log directory that take turns."""
_STEPS_PER_SLICE = 8


class TimeLookupQueue:
    """The look-ups of all log directories. `ended(log)` is called after each."""

    def __init__(self, jobs: Jobs, ended: Callable[[Log], None]) -> None:
        self._jobs = jobs
        self._ended = ended
        self._directories: dict[str, _Directory] = {}

    def submit(self, log: Log, look_up: Callable[[], Steps[Found]]) -> Later[Found]:
        """Run `look_up`; cancelling the result ends it. Fails with the KafkaError a client sees."""
        directory = self._directories.get(log.log_dir)
        if directory is None:
            directory = self._directories[log.log_dir] = _Directory(
                f"time:{log.log_dir}", self._jobs, self._ended
            )
        return directory.submit(log, look_up)


class _Lookup:
    """One look-up: queued, started and waiting for its next slice, or in a job."""

    __slots__ = ("error", "found", "is_cancelled", "later", "log", "steps")

    def __init__(self, log: Log, steps: Steps[Found], later: Later[Found]) -> None:
        self.log = log
        self.steps = steps
        self.later = later
        self.is_cancelled = False
        self.found: Found = None
        self.error: Exception | None = None

    def run_slice(self) -> bool:
        """A job: make a few steps; whether the look-up has ended."""
        try:
            for _ in range(_STEPS_PER_SLICE):
                if self.is_cancelled:
                    return True
                next(self.steps)
        except StopIteration as end:
            self.found = end.value
            return True
        except OSError as error:
            self.error = KafkaStorageError(f"{self.log.topic_partition}: {error}")
            return True
        return False


class _Directory:
    """The look-ups in one log directory."""

    def __init__(self, lane: str, jobs: Jobs, ended: Callable[[Log], None]) -> None:
        self._lane = lane
        self._jobs = jobs
        self._ended = ended
        self._queued: dict[_Lookup, None] = {}
        self._started: deque[_Lookup] = deque()
        """Those that wait for their next slice."""
        self._running: _Lookup | None = None

    def submit(self, log: Log, look_up: Callable[[], Steps[Found]]) -> Later[Found]:
        later: Later[Found] = Later(lambda: self._cancel(lookup))
        lookup = _Lookup(log, look_up(), later)
        self._queued[lookup] = None
        self._go_on()
        return later

    def _go_on(self) -> None:
        started = len(self._started) + (self._running is not None)
        for lookup in list(islice(self._queued, STARTED_AT_ONCE - started)):
            del self._queued[lookup]
            self._started.append(lookup)
        if self._running is None and self._started:
            lookup = self._running = self._started.popleft()
            self._jobs.submit(self._lane, lookup.run_slice).then(self._sliced, self._broken)

    def _sliced(self, has_ended: bool) -> None:
        lookup, self._running = self._running, None
        assert lookup is not None
        if has_ended or lookup.is_cancelled:
            self._end(lookup)
        else:
            self._started.append(lookup)
        self._go_on()

    def _broken(self, error: Exception) -> None:
        lookup, self._running = self._running, None
        assert lookup is not None
        lookup.error = error
        self._end(lookup)
        self._go_on()

    def _end(self, lookup: _Lookup) -> None:
        lookup.steps.close()
        self._ended(lookup.log)
        if lookup.error is not None:
            lookup.later.fail(lookup.error)
        else:
            lookup.later.succeed(lookup.found)

    def _cancel(self, lookup: _Lookup) -> None:
        lookup.is_cancelled = True
        if lookup is self._running:
            return  # Its job ends at the next step.
        self._queued.pop(lookup, None)
        if lookup in self._started:
            self._started.remove(lookup)
            lookup.steps.close()
