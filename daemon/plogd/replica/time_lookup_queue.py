"""Queues of lookups by time, which run in jobs on a separate lane for each log directory.

A lookup may read the disk and scan a million records, so it runs in slices of a few milliseconds.
Each lookup gets its first slice soon after it arrives, and most lookups do not need another one. Of
the remaining lookups, only `MAX_STARTED` run at a time, in alternating slices; the others are
queued, and start from the beginning when it is their turn. Seals, deletions and appends to a slow
disk run on other lanes.

If the client disconnects, its lookup is removed from the queue, or stops at the next step. Called
on the reactor thread; log/time_lookup.py implements the lookups.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from plog.errors import KafkaStorageError
from plogd.log.log import Log
from plogd.log.segment.time_index import TimestampAndOffset
from plogd.log.time_lookup import Steps
from plogd.ports import Jobs, Later

Found = TimestampAndOffset | None

# Each of these may hold a decompressed batch between two slices.
MAX_STARTED = 2
"""Maximum number of long lookups per log directory that run in alternating slices."""
_STEPS_PER_SLICE = 8


class TimeLookupQueue:
    """The lookups in all log directories. Calls `ended(log)` after each lookup."""

    def __init__(self, jobs: Jobs, ended: Callable[[Log], None]) -> None:
        self._jobs = jobs
        self._ended = ended
        self._directories: dict[str, _Directory] = {}

    def submit(self, log: Log, look_up: Callable[[], Steps[Found]]) -> Later[Found]:
        """Run `look_up`, which stops if the result is cancelled.

        Fails with the KafkaError for the client.
        """
        directory = self._directories.get(log.log_dir)
        if directory is None:
            directory = self._directories[log.log_dir] = _Directory(
                f"time:{log.log_dir}", self._jobs, self._ended
            )
        return directory.submit(log, look_up)


class _Lookup:
    """A lookup, which is new, queued, started, or running in a job."""

    __slots__ = ("begin", "error", "found", "is_cancelled", "is_started", "later", "log", "steps")

    def __init__(self, log: Log, begin: Callable[[], Steps[Found]], later: Later[Found]) -> None:
        self.log = log
        self.begin = begin
        self.later = later
        self.steps = begin()
        self.is_cancelled = False
        self.is_started = False
        """Whether the lookup keeps its state between slices; at most `MAX_STARTED` do."""
        self.found: Found = None
        self.error: Exception | None = None

    def restart(self) -> None:
        """Discard the progress made so far, and the data that the lookup holds."""
        self.steps.close()
        self.steps = self.begin()

    def run_slice(self) -> bool:
        """Run a few steps in a job; return whether the lookup has ended."""
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
    """The lookups in one log directory."""

    def __init__(self, lane: str, jobs: Jobs, ended: Callable[[Log], None]) -> None:
        self._lane = lane
        self._jobs = jobs
        self._ended = ended
        self._new: dict[_Lookup, None] = {}
        """Lookups that have not run yet, oldest first."""
        self._queued: dict[_Lookup, None] = {}
        """Long lookups that cannot start yet, oldest first."""
        self._started: deque[_Lookup] = deque()
        """Started lookups waiting for their next slice."""
        self._running: _Lookup | None = None
        self._ran_new = False
        """Whether the last slice was the first one of its lookup."""

    def submit(self, log: Log, look_up: Callable[[], Steps[Found]]) -> Later[Found]:
        later: Later[Found] = Later(lambda: self._cancel(lookup))
        lookup = _Lookup(log, look_up, later)
        self._new[lookup] = None
        self._run_next()
        return later

    def _run_next(self) -> None:
        if self._running is not None:
            return
        # Before the choice below, because a place may have become free when the last slice ended.
        while self._queued and len(self._started) < MAX_STARTED:
            self._start(_pop_first(self._queued))
        # New and started lookups alternate, so that neither can starve the others.
        self._ran_new = bool(self._new) and not (self._ran_new and self._started)
        if self._ran_new:
            lookup = _pop_first(self._new)
        elif self._started:
            lookup = self._started.popleft()
        else:
            return
        self._running = lookup
        self._jobs.submit(self._lane, lookup.run_slice).then(self._slice_done, self._slice_failed)

    def _start(self, lookup: _Lookup) -> None:
        lookup.is_started = True
        self._started.append(lookup)

    def _slice_done(self, has_ended: bool) -> None:
        lookup, self._running = self._running, None
        assert lookup is not None
        if has_ended or lookup.is_cancelled:
            self._end(lookup)
        elif lookup.is_started or (not self._queued and len(self._started) < MAX_STARTED):
            self._start(lookup)
        else:
            # While it is queued, the lookup must not hold a decompressed batch.
            lookup.restart()
            self._queued[lookup] = None
        self._run_next()

    def _slice_failed(self, error: Exception) -> None:
        lookup, self._running = self._running, None
        assert lookup is not None
        lookup.error = error
        self._end(lookup)
        self._run_next()

    def _end(self, lookup: _Lookup) -> None:
        # Otherwise, a decompressed batch would stay in memory until the outcome is delivered.
        lookup.steps.close()
        # The job only notes wrong index entries; the rebuild must start on the reactor thread.
        self._ended(lookup.log)
        if lookup.error is not None:
            lookup.later.fail(lookup.error)
        else:
            lookup.later.succeed(lookup.found)

    def _cancel(self, lookup: _Lookup) -> None:
        lookup.is_cancelled = True
        if lookup is self._running:
            return  # The lookup's job stops at its next step.
        self._new.pop(lookup, None)
        self._queued.pop(lookup, None)
        if lookup in self._started:
            self._started.remove(lookup)
        lookup.steps.close()
        self._ended(lookup.log)


def _pop_first(lookups: dict[_Lookup, None]) -> _Lookup:
    first = next(iter(lookups))
    del lookups[first]
    return first
