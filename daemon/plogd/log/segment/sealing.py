"""Seal rolled segments: make them durable, so that recovery can skip them.

A seal syncs the segment's records and indexes, and writes the other files that startup needs: the
producer snapshot at the segment's end, and the leader epochs. A seal is a job on the log
directory's lane, and runs in parallel with the sync rounds of disk/group_commit.py. `Log` rolls the
segment, and advances its recovery point when the seal is done.

While many segments wait for their seals, appends wait behind the seals (disk/slow_disk.py).

The seals of a log run one at a time, in order: a snapshot proves to recovery that all segments
below it are durable, so it must not be written before the seals of all earlier segments are done.

Retention may delete a segment that is not sealed yet. The segment's files are then kept until the
producer snapshot is on disk, because a crash would otherwise lose the state of the producers. On a
full disk, the files are deleted immediately, to free space.

An OSError from a sync takes the directory offline. If the disk is full, or after a bug, only this
seal fails, and is retried after `RETRY_MS`.

Source: Kafka 3.9 UnifiedLog.roll, UnifiedLog.flush; docs/architecture.md, rules R11 and R12.
Invariants: a segment is sealed only once all these files are on disk; a snapshot in a log's
directory proves that all segments below its offset are durable.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from plogd.log.deletion import lane_of
from plogd.log.housekeeping import RETRY_MS, Housekeeping
from plogd.log.io_errors import is_refusal
from plogd.log.log import Log
from plogd.log.segment.index_rebuild import IndexRebuilds
from plogd.log.segment.log_segment import LogSegment
from plogd.ports import File, Jobs, Timers
from plogd.waiters import Waiters

T = TypeVar("T")

_TASK = "seal"


class _Seal(NamedTuple):
    """A segment to seal, and the job that writes the producer snapshot at its end."""

    segment: LogSegment
    end_offset: int
    write_snapshot: Callable[[], None]
    followers: list[Callable[[], None]]
    """Functions to call once the snapshot is on disk or the seal has been abandoned."""


class Sealing:
    """The seals for all logs of a broker; called on the reactor's thread.

    `storage_failed(log_dir, error)` takes a log directory offline; `unsealed(log_dir, change)`
    records a change in the number of segments that wait for their seals.
    """

    def __init__(
        self,
        *,
        jobs: Jobs,
        timers: Timers,
        housekeeping: Housekeeping,
        index_rebuilds: IndexRebuilds,
        storage_failed: Callable[[str, OSError], None],
        unsealed: Callable[[str, int], None],
    ) -> None:
        self._jobs = jobs
        self._timers = timers
        self._housekeeping = housekeeping
        self._index_rebuilds = index_rebuilds
        self._storage_failed = storage_failed
        self._unsealed = unsealed
        self._waiting: dict[Log, deque[_Seal]] = {}
        """Seals that are not done, oldest first. Only each log's first seal is in progress."""
        self._running: set[Log] = set()
        """Logs with a seal job in progress, as opposed to a scheduled retry."""
        self._paused: dict[Log, Waiters[None]] = {}
        """Logs whose seals do not begin, each with the waiters for the seal in progress."""

    def seal(self, log: Log, segment: LogSegment, end_offset: int) -> None:
        """Make `segment`, which ends at `end_offset`, durable, then call `log.sealed`."""
        waiting = self._waiting.setdefault(log, deque())
        # Prepared now, because later appends change the producer state.
        write_snapshot = log.producer_state.prepare_snapshot(end_offset)
        waiting.append(_Seal(segment, end_offset, write_snapshot, []))
        self._unsealed(log.log_dir, 1)
        if len(waiting) == 1:
            self._begin(log)

    def after_seals(
        self, log: Log, segments: Sequence[LogSegment], function: Callable[[], None]
    ) -> None:
        """Call `function` as soon as no seals for `segments` are pending.

        The function is also called if the log is closed or goes offline, or if the disk is full.
        """
        pending = [seal for seal in self._waiting.get(log, ()) if seal.segment in segments]
        if pending:
            pending[-1].followers.append(function)
        else:
            function()

    async def pause(self, log: Log) -> None:
        """Begin no seals of `log` until `resume`; wait for the seal in progress."""
        ended = self._paused.setdefault(log, Waiters())
        if log in self._running:
            await ended.wait()

    def forget(self, log: Log, end_offset: int) -> None:
        """Drop the seals of a paused log whose snapshots are above `end_offset`, its new end.

        These snapshots contain producers of removed records.
        """
        waiting = self._waiting.pop(log, ())
        kept = [seal for seal in waiting if seal.end_offset <= end_offset]
        if kept:
            self._waiting[log] = deque(kept)
        for seal in waiting:
            if seal not in kept:
                self._drop(log, seal)

    def snapshots(self, log: Log, end_offset: int) -> list[Callable[[], None]]:
        """Return the jobs that write the missing snapshots at or below `end_offset`."""
        return [
            seal.write_snapshot
            for seal in self._waiting.get(log, ())
            if seal.end_offset <= end_offset
        ]

    def resume(self, log: Log) -> None:
        """Begin the seals of `log` again."""
        self._paused.pop(log, None)
        if self._waiting.get(log):
            self._begin(log)

    def is_running(self, log_dir: str) -> bool:
        """Return whether a job is sealing a segment in this log directory."""
        return any(log.log_dir == log_dir for log in self._running)

    def _begin(self, log: Log) -> None:
        """Begin the oldest seal of `log`, unless the log is paused, closed or offline."""
        # A retry may be due although the seal was dropped, or was begun by `resume`.
        if log in self._paused or log in self._running or log not in self._waiting:
            return
        # The directory of a closed log may belong to a new topic with the same name.
        if log.closed or log.offline:
            self._abandon(log)
            return
        seal = self._waiting[log][0]
        if seal.segment in log.unsynced.unsealed:
            self._submit(log, seal)
        else:  # Retention has deleted the segment, but the snapshot must include its producers.
            self._note_producers(log, seal)

    def _ended(self, log: Log) -> None:
        """Remove the finished seal of `log`, and begin the next seal."""
        waiting = self._waiting[log]
        seal = waiting.popleft()
        if waiting:
            self._begin(log)
        else:
            del self._waiting[log]
        self._drop(log, seal)

    def _abandon(self, log: Log) -> None:
        """Drop all seals of `log`; the next startup recovers the segments."""
        for seal in self._waiting.pop(log):
            self._drop(log, seal)

    def _drop(self, log: Log, seal: _Seal) -> None:
        self._unsealed(log.log_dir, -1)
        _release(seal)

    def _submit(self, log: Log, seal: _Seal) -> None:
        segment = seal.segment
        files = segment.sync_files()
        held = [file.retain() for file in files if file.is_open]
        closed = [file for file in files if not file.is_open]  # The job opens them.
        # Prepared on the reactor, so that no epoch is assigned at the same time.
        write_epochs = log.leader_epochs.prepare_flush()

        def run() -> OSError | None:
            """Sync and write the files; return the error if the disk is only full. A job."""
            opened: list[File] = []
            try:
                # Before the first sync, because a seal is retried only if no sync has begun.
                try:
                    opened.extend(file.retain() for file in closed)
                    segment.transactions.flush()
                except OSError as error:
                    if not is_refusal(error):
                        raise
                    return error
                segment.trim()
                for file in (*held, *opened):
                    file.sync()
            finally:
                _close(opened)
            try:
                write_epochs()
                # Last, because the snapshot proves that all segments below it are durable.
                seal.write_snapshot()
            except OSError as error:
                if not is_refusal(error):
                    raise
                return error
            return None

        def done(refusal: OSError | None) -> None:
            _close(held)
            if refusal is None:
                log.sealed(segment)
                # While the segment was active, its indexes could not be rebuilt.
                if segment.index_is_suspect:
                    self._index_rebuilds.check(log, segment)
                self._ended(log)
            else:
                log.leader_epochs.is_dirty = True  # The epochs may not have been written.
                self._retry(log, refusal)

        def failed(error: Exception) -> None:
            _close(held)  # Not in the job, which may never have run.
            log.leader_epochs.is_dirty = True  # The epochs may not have been written.
            if not isinstance(error, OSError) or log.closed:
                self._retry(log, error)
            elif segment in log.unsynced.unsealed:
                # Even if the disk was only full, because the kernel may drop pages when a sync
                # fails.
                self._disk_failed(log, error)
            else:  # Retention has deleted the segment, including the files that the job opens.
                self._begin(log)

        self._run(log, run, done, failed)

    def _run(
        self,
        log: Log,
        job: Callable[[], T],
        on_done: Callable[[T], None],
        on_failed: Callable[[Exception], None],
    ) -> None:
        def done(value: T) -> None:
            self._running.discard(log)
            on_done(value)
            self._notify_paused(log)

        def failed(error: Exception) -> None:
            self._running.discard(log)
            on_failed(error)
            self._notify_paused(log)

        running = self._jobs.submit(lane_of(log.log_dir), job)
        self._running.add(log)
        running.then(done, failed)

    def _notify_paused(self, log: Log) -> None:
        waiters = self._paused.get(log)
        if waiters is not None:
            waiters.succeed(None)

    def _note_producers(self, log: Log, seal: _Seal) -> None:
        def failed(error: Exception) -> None:
            if isinstance(error, OSError) and not is_refusal(error) and not log.closed:
                self._disk_failed(log, error)
            else:
                self._retry(log, error)

        self._run(log, seal.write_snapshot, lambda _: self._ended(log), failed)

    def _disk_failed(self, log: Log, error: OSError) -> None:
        self._abandon(log)
        self._storage_failed(log.log_dir, error)

    def _retry(self, log: Log, error: Exception) -> None:
        """Schedule a retry of the oldest seal of `log`."""
        # The directory of a closed log may belong to a new topic with the same name.
        if log.closed or log.offline:
            self._abandon(log)
            return
        # On a full disk, retention must be able to free space without waiting for snapshots.
        if isinstance(error, OSError) and is_refusal(error):
            for seal in self._waiting[log]:
                _release(seal)
        self._housekeeping.failed(_TASK, str(log.topic_partition), error)
        self._timers.call_later(RETRY_MS, lambda: self._begin(log))


def _release(seal: _Seal) -> None:
    """Call the followers of a seal, each only once."""
    followers = seal.followers[:]
    seal.followers.clear()
    for function in followers:
        function()


def _close(files: Sequence[File]) -> None:
    for file in files:
        file.close()
