"""Compact logs in the background, one at a time; the log with the largest dirty share is first.

cleaning.py does the work in another process; this module chooses the log, puts each new segment in
place as soon as it is complete, and notes how far the log is compacted (cleaner-offset-checkpoint).
A log that cannot be compacted is reported and tried again later; the others go on.

Called on the reactor's thread. Source: Kafka 3.9 LogCleaner, LogCleanerManager. Invariant: a log
that is closed, offline, paused or truncated is not changed anymore.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

from plog.errors import CorruptMessage, PlogError
from plogd.config import BrokerConfig
from plogd.fair_queue import FairQueue, Slices
from plogd.log.compaction import segment_swap
from plogd.log.compaction.batch_filter import NO_DATA_OFFSET, LastRecord
from plogd.log.compaction.cleanable import Cleanable, cleanable_part, oldest_timestamp
from plogd.log.compaction.cleaner_checkpoints import CleanerCheckpoints
from plogd.log.compaction.cleaning import (
    CannotClean,
    Cleaned,
    CleaningRequest,
    Read,
    Replacement,
    SourceSegment,
    clean,
)
from plogd.log.disk.log_dirs import LogDirs
from plogd.log.housekeeping import RETRY_MS, Housekeeping
from plogd.log.io_errors import is_refusal
from plogd.log.log import Log
from plogd.log.segment.log_segment import LogSegment
from plogd.log.segment.transaction_index import AbortedTransaction
from plogd.ports import Later, Ports, spawn
from plogd.waiters import Waiters
from plogd.work import Task

_TASK = "compaction"
_LANE = "work"
_DECOMPRESSED_BYTES = 256 << 20
"""Maximum size of a batch's uncompressed records."""


class _Abandoned(Exception):
    """The log has changed, so that its compaction must end."""


@dataclass(slots=True)
class LastRun:
    """Facts about the last compaction, for metrics."""

    map_utilization: float = 0.0
    seconds: float = 0.0
    read_bytes: int = 0
    written_bytes: int = 0

    @property
    def recopied(self) -> float:
        """The share of the bytes read that were written again."""
        return self.written_bytes / self.read_bytes if self.read_bytes else 0.0


class LogCleaner:
    """Compacts the logs that `logs()` returns; `config()` has the current settings.

    `write_recovery_points(log_dir)` returns whether the checkpoint is up to date;
    `storage_failed(log_dir, error)` takes a log directory offline.
    """

    def __init__(
        self,
        ports: Ports,
        dirs: LogDirs,
        *,
        config: Callable[[], BrokerConfig],
        logs: Callable[[], Collection[Log]],
        fair_queue: FairQueue,
        housekeeping: Housekeeping,
        write_recovery_points: Callable[[str], Awaitable[bool]],
        storage_failed: Callable[[str, OSError], None],
    ) -> None:
        self._clock = ports.clock
        self._files = ports.files
        self._jobs = ports.jobs
        self._report = ports.report
        self._timers = ports.timers
        self._work = ports.work
        self._dirs = dirs
        self._config = config
        self._logs = logs
        self._queue = fair_queue
        self._housekeeping = housekeeping
        self._write_recovery_points = write_recovery_points
        self._storage_failed = storage_failed
        self.checkpoints = CleanerCheckpoints(dirs, ports.jobs, storage_failed)
        self._paused: dict[Log, int] = {}
        """Logs that must not be compacted, with the number of reasons."""
        self._log: Log | None = None
        """The log that is being compacted."""
        self._task: Task | None = None
        self._pause: Later[None] | None = None
        """Set while the compaction in progress sleeps."""
        self._ended: Waiters[None] = Waiters()
        self._is_stopped = False
        self.uncleanable: dict[Log, str] = {}
        """The logs whose last compaction failed, with the reason."""
        self.last_run = LastRun()
        self.max_dirty_ratio = 0.0
        """The largest dirty share of a log at the last check."""
        self._checked_ms = ports.clock.monotonic_ms()
        self._postponed: set[Log] = set()
        """The logs whose last compaction failed less than `RETRY_MS` ago."""

    # -- control ------------------------------------------------------------------------------

    async def pause(self, log: Log) -> None:
        """Stop compacting `log` until `resume`, and wait until its files are no longer changed."""
        self._paused[log] = self._paused.get(log, 0) + 1
        await self._interrupt(log)

    def resume(self, log: Log) -> None:
        """Allow the compaction of `log` again."""
        self._paused[log] -= 1
        if not self._paused[log]:
            del self._paused[log]

    async def truncated(self, log: Log, offset: int) -> bool:
        """Note that `log` is not compacted from `offset` on, where it will get other records.

        Called while `log` is paused. Returns whether the checkpoint could be written.
        """
        # Otherwise, the keys of the new records below the old checkpoint would never be noted, and
        # a value would remain after its tombstone.
        if (self.checkpoints.offset_of(log) or 0) <= offset:
            return True
        try:
            await self.checkpoints.write(log, offset)
        except OSError:
            return False
        return True

    async def forget(self, log: Log) -> None:
        """Wait until the files of a closed log are no longer changed."""
        await self._interrupt(log)
        self.uncleanable.pop(log, None)
        self._postponed.discard(log)

    async def stop(self) -> None:
        """End all work, because the broker stops."""
        self._is_stopped = True
        if self._log is not None:
            await self._interrupt(self._log)

    async def _interrupt(self, log: Log) -> None:
        if self._log is log:
            if self._task is not None:
                self._task.stop()
            ended = self._ended.wait()
            self._wake()
            await ended

    def start(self) -> None:
        """Compact logs from now on, and look for another one after ``log.cleaner.backoff.ms``."""

        def tick() -> None:
            if not self._is_stopped:
                self.run().then(
                    # As long as there are logs to compact, the next one follows at once.
                    lambda was_needed: schedule(0 if was_needed else None),
                    failed,
                )

        def failed(error: Exception) -> None:
            self._housekeeping.failed(_TASK, "a log", error)
            schedule(None)

        def schedule(delay_ms: int | None) -> None:
            backoff_ms = self._config().log_cleaner_backoff_ms
            self._timers.call_later(backoff_ms if delay_ms is None else delay_ms, tick)

        schedule(None)

    # -- runs ---------------------------------------------------------------------------------

    def run(self) -> Later[bool]:
        """Compact the log that needs it most; return whether there was one."""
        return spawn(self._run())

    async def _run(self) -> bool:
        if self._log is not None or self._is_stopped or not self._config().log_cleaner_enable:
            return False
        found = await self._filthiest()
        if found is None or self._is_stopped or self._log is not None:
            return False
        log, part = found
        self._log = log
        try:
            await self._clean(log, part)
        finally:
            self._log = self._task = None
            self._ended.succeed(None)
        return True

    def ms_since_last_check(self) -> float:
        """Return the time since the logs were last checked."""
        return self._clock.monotonic_ms() - self._checked_ms

    async def _filthiest(self) -> tuple[Log, Cleanable] | None:
        """Return the log with the largest dirty share that must be compacted."""
        now_ms = self._clock.now_ms()
        best: tuple[Log, Cleanable] | None = None
        max_dirty_ratio = 0.0
        async for log in Slices(self._queue).over(list(self._logs())):
            if not (log.config.is_compacted and self._may_clean(log)):
                continue
            try:
                part = self._part(log, now_ms)
            except (PlogError, OSError) as error:  # An index cannot be read.
                self._failed(log, error)
                continue
            max_dirty_ratio = max(max_dirty_ratio, part.dirty_ratio)
            if not part.segments or (best and part.dirty_ratio <= best[1].dirty_ratio):
                continue
            if part.dirty_ratio > log.config.min_cleanable_dirty_ratio or (
                await self._is_overdue(log, part, now_ms)
            ):
                best = log, part
        self.max_dirty_ratio, self._checked_ms = max_dirty_ratio, self._clock.monotonic_ms()
        return best

    def _may_clean(self, log: Log) -> bool:
        # The indexes of a damaged segment are incomplete, and its records must not be copied.
        return (
            log.is_writable
            and log not in self._paused
            and log not in self._postponed
            and not any(segment.corrupt_ranges for segment in log.segments)
        )

    def _part(self, log: Log, now_ms: int) -> Cleanable:
        checkpointed = self.checkpoints.offset_of(log)
        return cleanable_part(log, checkpointed_offset=checkpointed, now_ms=now_ms)

    async def _is_overdue(self, log: Log, part: Cleanable, now_ms: int) -> bool:
        lag_ms = log.config.max_compaction_lag_ms
        if lag_ms >= now_ms:  # Usually, there is no limit.
            return False
        dirty = part.dirty_segments
        lane = self._dirs[log.log_dir].read_lane
        try:
            oldest = await self._jobs.submit(lane, lambda: oldest_timestamp(dirty))
        except (OSError, CorruptMessage):  # The compaction or a read reports the error.
            return True
        return oldest is not None and now_ms - oldest > lag_ms

    # -- one log ------------------------------------------------------------------------------

    async def _clean(self, log: Log, part: Cleanable) -> None:
        try:
            request = await self._request(log, part)
            await self._follow(log, part, request)
        except _Abandoned:
            pass
        except Exception as error:  # A bug affects only this log.
            # Retention may have deleted a segment before it was read.
            is_deleted = isinstance(error, FileNotFoundError) and not _begins_at(log, part)
            if self._may_go_on(log) and not is_deleted:  # Otherwise, the function was stopped.
                self._failed(log, error)
        if self._task is not None:
            await self._jobs.submit(_LANE, self._task.close)
        if not (log.closed or log.offline):
            lane = self._dirs[log.log_dir].lane
            await self._jobs.submit(
                lane, lambda: segment_swap.remove_unfinished(self._files, log.directory)
            )

    def _may_go_on(self, log: Log) -> bool:
        return not self._is_stopped and log.is_writable and log not in self._paused

    def _failed(self, log: Log, error: Exception) -> None:
        self.uncleanable[log] = str(error)
        # Otherwise, the log with the largest dirty share would be tried again at once, forever.
        self._postponed.add(log)
        self._timers.call_later(RETRY_MS, lambda: self._postponed.discard(log))
        self._housekeeping.failed(_TASK, log.topic_partition, error)

    async def _request(self, log: Log, part: Cleanable) -> CleaningRequest:
        config = self._config()
        now_ms = self._clock.now_ms()
        producers: dict[int, LastRecord] = {}
        async for state in Slices(self._queue).over(list(log.producer_state.producers.values())):
            last_offset = state.batches[-1].last_offset if state.batches else NO_DATA_OFFSET
            producers[state.producer_id] = LastRecord(state.producer_epoch, last_offset)
        first = part.segments[0]
        aborted = await self._aborted(log, first.base_offset, part.end_offset)
        ends = [*(segment.base_offset for segment in part.segments[1:]), part.end_offset]
        return CleaningRequest(
            directory=log.directory,
            segments=[
                SourceSegment(segment.base_offset, end, segment.size_bytes)
                for segment, end in zip(part.segments, ends, strict=True)
            ],
            first_dirty_offset=part.first_dirty_offset,
            config=log.config,
            producers=producers,
            aborted=aborted,
            now_ms=now_ms,
            max_map_bytes=config.log_cleaner_dedupe_buffer_size,
            load_factor=config.log_cleaner_io_buffer_load_factor,
            max_decompressed_bytes=_DECOMPRESSED_BYTES,
        )

    async def _aborted(self, log: Log, offset: int, end_offset: int) -> list[AbortedTransaction]:
        indexes = [segment.transactions.index for segment in log.segments.with_aborted()]

        def collect() -> list[AbortedTransaction]:
            found: list[AbortedTransaction] = []
            for index in indexes:
                assert index is not None
                some, is_complete = index.collect(offset, end_offset, nowait=False)
                found += some
                if is_complete:
                    break
            return found

        if not indexes:
            return []
        return await self._jobs.submit(self._dirs[log.log_dir].read_lane, collect)

    async def _follow(self, log: Log, part: Cleanable, request: CleaningRequest) -> None:
        """Run the compaction, and put its segments in place."""
        segments = {segment.base_offset: segment for segment in part.segments}
        # First, because from then on, a startup knows that the log may have gaps.
        if self.checkpoints.offset_of(log) is None:
            await self.checkpoints.write(log, part.first_dirty_offset)
        # If its snapshots are lost, recovery must not take a gap for records that were not synced.
        if not await self._write_recovery_points(log.log_dir):
            raise CannotClean("the recovery points could not be written; free space on the disk")
        rewrites, started_ms = log.rewrites, self._clock.monotonic_ms()
        read_bytes = written_bytes = 0
        task = self._task = self._work.begin(clean, request)
        while True:
            report = await self._jobs.submit(_LANE, task.next_report)
            if not self._may_go_on(log) or log.rewrites != rewrites:
                raise _Abandoned
            if isinstance(report, Read):
                read_bytes += report.read_bytes
                written_bytes += report.written_bytes
                await self._throttle(report)
            elif isinstance(report, Replacement):
                old = [segments[base_offset] for base_offset in report.sources]
                await self._replace(log, old, report)
                rewrites = log.rewrites
            elif isinstance(report, Cleaned):
                await self._finish(log, report)
                self.last_run.map_utilization = report.map_utilization
                self.last_run.seconds = (self._clock.monotonic_ms() - started_ms) / 1000
                self.last_run.read_bytes = read_bytes
                self.last_run.written_bytes = written_bytes
                return

    async def _throttle(self, report: Read) -> None:
        rate = self._config().log_cleaner_io_max_bytes_per_second
        wait_ms = (report.read_bytes + report.written_bytes) / rate * 1000
        if wait_ms >= 1:
            await self._sleep(wait_ms)

    async def _replace(self, log: Log, old: list[LogSegment], new: Replacement) -> None:
        """Put a new segment in the place of `old`, unless retention has deleted them."""
        log_dir, files, directory = self._dirs[log.log_dir], self._files, log.directory

        def is_unchanged() -> bool:
            return all(segment in log.segments for segment in old)

        if not any(segment in log.segments for segment in old):
            return
        # The rest of the group keeps its outdated records, so the log is not compacted.
        if not is_unchanged():
            raise _Abandoned
        rewrites = log.rewrites
        try:
            replacement = await self._jobs.submit(
                log_dir.lane,
                lambda: segment_swap.commit(files, directory, new.base_offset, log.config),
            )
        except OSError as error:
            self._swap_failed(log, error)
            raise
        if not (self._may_go_on(log) and is_unchanged() and log.rewrites == rewrites):
            replacement.close()
            if not (log.closed or log.offline):
                await self._discard(log, new)
            raise _Abandoned
        log.rewrites += 1
        log.segments.replace(old, replacement)
        await self._complete(log, old, replacement)

    async def _discard(self, log: Log, new: Replacement) -> None:
        files, directory = self._files, log.directory
        try:
            await self._jobs.submit(
                self._dirs[log.log_dir].lane,
                lambda: segment_swap.discard(files, directory, new.base_offset),
            )
        except OSError as error:
            self._swap_failed(log, error)
            raise

    async def _complete(self, log: Log, old: list[LogSegment], new: LogSegment) -> None:
        """Remove the old files. The log already uses the new segment."""
        # If the broker stops, the next startup removes them.
        while not (log.closed or log.offline or self._is_stopped):
            try:
                await self._jobs.submit(
                    self._dirs[log.log_dir].lane,
                    lambda: segment_swap.complete(self._files, log.directory, old, new),
                )
                return
            except OSError as error:
                self._swap_failed(log, error)
                if not is_refusal(error):
                    break
            await self._sleep(RETRY_MS)
        for segment in old:  # The log no longer contains them, so it does not close them.
            segment.close()

    def _swap_failed(self, log: Log, error: OSError) -> None:
        # The directory of a closed log may have been renamed.
        if not (is_refusal(error) or log.closed or log.offline):
            self._storage_failed(log.log_dir, error)

    async def _sleep(self, wait_ms: float) -> None:
        """Sleep until `wait_ms` have passed, or the log must no longer be changed."""
        timer = self._timers.call_later(wait_ms, self._wake)
        self._pause = Later()
        await self._pause
        timer.cancel()

    def _wake(self) -> None:
        pause, self._pause = self._pause, None
        if pause is not None:
            pause.succeed(None)

    async def _finish(self, log: Log, result: Cleaned) -> None:
        """Note that the log is compacted up to the end of this run."""
        await self.checkpoints.write(log, result.end_offset)
        self.uncleanable.pop(log, None)
        self._report(
            "compacted {topic_partition} up to offset {offset}",
            topic_partition=log.topic_partition,
            offset=result.end_offset,
        )
        if result.keyless_records:
            self._report(
                "compaction removed {count} records without a key from {topic_partition}; they were"
                " written before cleanup.policy contained compact",
                count=result.keyless_records,
                topic_partition=log.topic_partition,
                level="warn",
            )


def _begins_at(log: Log, part: Cleanable) -> bool:
    """Return whether retention has deleted no segment of `part`."""
    return log.segments.first.base_offset == part.segments[0].base_offset
