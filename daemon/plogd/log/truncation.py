"""Remove records from the end of a log, or all of them, as a follower does.

A follower removes the records that its new leader does not have. They may be on disk, sealed, and
included in the checkpoints. `Truncations` therefore proceeds in this order:

1. The writes, the sync and the seal in progress end, and no others begin. A sync that began earlier
   can therefore not advance the durable end to a removed record.
2. The recovery point, the high watermark and the end of the compacted part are lowered, in memory
   and on disk, and the producer snapshots above the new end are deleted. Otherwise, the next
   startup would report the removed records as lost, and continue after them.
3. In memory, the log ends after its last remaining batch, so that no reader gets a removed record.
4. In a job, whole segments are durably renamed to ``.deleted``, one at a time, newest first;
   then, the last segment is truncated, and everything that recovery will read is synced. The log
   accepts new records only afterward, so that a removed record never reappears next to a new one.
5. The state of the producers of removed records is loaded again, from the newest snapshot.

If a step fails, the log rejects writes until a later truncation succeeds, which completes the first
one. Called on the reactor's thread. Source: Kafka 3.9 UnifiedLog.truncateTo,
UnifiedLog.truncateFullyAndStartAt; docs/architecture.md, rules R12 and R13. Invariant: after a
crash at any point, the log consists of its first records, including all records below the offset.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from plog.errors import CorruptMessage, KafkaStorageError
from plog.records.batch import BatchHeader
from plogd.log import file_names
from plogd.log.deletion import lane_of
from plogd.log.log import Log
from plogd.log.producer_state import ProducerStateManager
from plogd.log.recovery.segment_recovery import replay_producers, replay_readable
from plogd.log.segment.index_file import CorruptIndex
from plogd.log.segment.log_segment import LogSegment
from plogd.log.segment.sealing import Sealing
from plogd.ports import Later, Ports, spawn
from plogd.waiters import Waiters


class _Cut(NamedTuple):
    """Where a log is cut: the end offset, and the byte position in the last segment kept."""

    end_offset: int
    position: int


class Truncations:
    """Truncates the logs of a broker.

    `write_checkpoint(log_dir, name)` writes a checkpoint of a log directory, even if it seems to be
    up to date, and returns whether that succeeded.
    """

    def __init__(
        self,
        ports: Ports,
        *,
        sealing: Sealing,
        pause_cleaning: Callable[[Log], Awaitable[None]],
        resume_cleaning: Callable[[Log], None],
        lower_cleaned_end: Callable[[Log, int], Awaitable[bool]],
        write_checkpoint: Callable[[str, str], Awaitable[bool]],
    ) -> None:
        self._files = ports.files
        self._jobs = ports.jobs
        self._report = ports.report
        self._sealing = sealing
        self._pause_cleaning = pause_cleaning
        self._resume_cleaning = resume_cleaning
        self._lower_cleaned_end = lower_cleaned_end
        self._write_checkpoint = write_checkpoint
        self._removed: dict[Log, list[LogSegment]] = {}
        """Segments that are no longer part of a log, but may still have their names, oldest first.
        An entry means that a truncation has begun to remove records, and is not complete."""
        self._restarts: dict[Log, int] = {}
        """The start offsets of logs from which all records are being removed."""
        self._in_progress: dict[Log, Waiters[None]] = {}
        """The logs that are being truncated, each with the truncations that wait for it."""

    def truncate(self, log: Log, offset: int, fully: bool) -> Later[None]:
        """Remove the batches that end at or above `offset`, or all batches if `fully` is set."""
        return spawn(self._truncate(log, offset, fully))

    async def idle(self, log_dir: str) -> None:
        """Wait until no log in this directory is being truncated; used during shutdown."""
        while waiting := [one for one in self._in_progress if one.log_dir == log_dir]:
            await self._in_progress[waiting[0]].wait()

    def forget(self, log: Log) -> None:
        """Release what is left of an unfinished truncation of a closed or offline log."""
        if log not in self._in_progress:
            self._restarts.pop(log, None)
            for segment in self._removed.pop(log, ()):
                segment.close()
            self._sealing.resume(log)  # This drops its seals.

    async def _truncate(self, log: Log, offset: int, fully: bool) -> None:
        while log in self._in_progress:
            await self._in_progress[log].wait()
        waiters = self._in_progress[log] = Waiters()
        try:
            await self._pause_cleaning(log)
            await self._stop_and_remove(log, offset, fully)
        finally:
            self._resume_cleaning(log)
            del self._in_progress[log]
            if log.closed or log.offline:
                self.forget(log)
            waiters.succeed(None)

    async def _stop_and_remove(self, log: Log, offset: int, fully: bool) -> None:
        await log.stop_writes()
        await self._sealing.pause(log)
        _check_open(log)
        try:
            await self._remove(log, offset, fully)
        except OSError as error:
            log.leader_epochs.is_dirty = True  # They may not have been written.
            _check_open(log)  # The files of a closed log may be gone.
            raise log.disk_failed("truncate", error) from error
        self._sealing.resume(log)
        log.resume_writes()

    async def _remove(self, log: Log, offset: int, fully: bool) -> None:
        restart = self._restarts.get(log)
        if fully or restart is not None:
            # An unfinished restart has no usable segments, so it is completed first.
            return await self._restart(log, offset if restart is None or fully else restart)
        if offset >= log.log_end_offset and log not in self._removed:
            return None
        # As in Kafka, a log that begins above the offset has no record that the leader has.
        if offset < max(log.log_start_offset, log.segments.first.base_offset):
            return await self._restart(log, offset)
        return await self._cut(log, min(offset, log.log_end_offset))

    # -- a part of the log --------------------------------------------------------------------

    async def _cut(self, log: Log, offset: int) -> None:
        old_end_offset = log.log_end_offset
        lane = lane_of(log.log_dir)
        kept = [segment for segment in log.segments if segment.base_offset <= offset]
        last = kept[-1]
        cut = await self._jobs.submit(lane, lambda: _find_cut(last, offset))
        _check_open(log)
        if cut.end_offset < log.log_start_offset:  # The only batch left contains the log start.
            return await self._restart(log, cut.end_offset)
        await self._lower_checkpoints(log, cut.end_offset, last.base_offset)
        removed = self._removed.setdefault(log, [])
        removed[:0] = _cut_after(log, last, cut)
        write_epochs = log.leader_epochs.prepare_flush()
        # Their records may be only in the page cache, and recovery relies on the end of the log.
        unsealed = [segment for segment in log.unsynced.unsealed if segment is not last]
        write_snapshots = self._sealing.snapshots(log, cut.end_offset)

        def remove() -> ProducerStateManager:
            self._remove_segments(log, removed, cut.end_offset)
            # Only after that, because the log must not have a gap after a power loss.
            last.truncate_at(cut.position, cut.end_offset)
            last.flush_indexes()
            for segment in (*unsealed, last):
                for file in segment.sync_files():
                    file.sync()
            write_epochs()
            for write_snapshot in write_snapshots:
                write_snapshot()  # Only now, because it proves that the records below are durable.
            self._files.sync_dir(log.directory)
            return self._load_producers(log, kept, cut.end_offset)

        loaded = await self._jobs.submit(lane, remove)
        log.producer_state.take_loaded(loaded, cut.end_offset)
        self._end(log, cut.end_offset)
        self._report(
            "truncated {topic_partition} from offset {old} to {offset}",
            topic_partition=log.topic_partition,
            old=old_end_offset,
            offset=log.log_end_offset,
        )
        return None

    def _load_producers(
        self, log: Log, kept: Sequence[LogSegment], end_offset: int
    ) -> ProducerStateManager:
        """Return the producers of the records below `end_offset`. Runs as a job."""
        state = log.producer_state.successor()
        start = state.load_newest(end_offset) or kept[0].base_offset
        for segment, following in zip(kept, [*kept[1:], None], strict=True):
            if following is None or following.base_offset > start:
                replay_readable(segment, start, _bind_replay(segment, state))
        return state

    # -- all records --------------------------------------------------------------------------

    async def _restart(self, log: Log, start: int) -> None:
        """Remove all records and begin the log at `start`."""
        old_start, old_end = log.log_start_offset, log.log_end_offset
        log.log_start_offset = start
        try:
            await self._lower_checkpoints(log, start, start, file_names.LOG_START_OFFSET_CHECKPOINT)
        except KafkaStorageError:
            if log not in self._restarts:  # Nothing has been removed yet.
                log.log_start_offset = old_start
            raise
        self._restarts[log] = start
        removed = self._removed.setdefault(log, [])
        removed += [segment for segment in log.segments if segment not in removed]
        log.log_start_offset = log.log_end_offset = start
        log.leader_epochs.truncate_from_end(0)
        write_epochs = log.leader_epochs.prepare_flush()

        def restart() -> LogSegment:
            # Segments that retention has removed may have names that the log uses again.
            log.restarts += 1
            self._remove_segments(log, removed, -1)
            self._remove_strangers(log.directory)
            segment = LogSegment.create(self._files, log.directory, start, log.config)
            for file in segment.sync_files():
                file.sync()
            write_epochs()
            self._files.sync_dir(log.directory)
            return segment

        segment = await self._jobs.submit(lane_of(log.log_dir), restart)
        log.producer_state = log.producer_state.successor()
        log.segments.replace_all(segment)
        log.unsynced.truncated(removed, segment, start)
        log.recovery_point = log.high_watermark = start
        del self._restarts[log]
        self._end(log, -1)
        self._report(
            "removed all records of {topic_partition}, from offset {old_start} to {old_end}; the"
            " log begins at offset {start}",
            topic_partition=log.topic_partition,
            old_start=old_start,
            old_end=old_end,
            start=start,
        )

    def _remove_strangers(self, directory: str) -> None:
        """Unlink the segment files that are not part of the log anymore. Runs as a job."""
        for name in self._files.listdir(directory):
            parsed = file_names.parse_segment_file_name(name)
            if parsed is not None and not parsed.state:
                self._files.unlink(f"{directory}/{name}")

    # -- both ---------------------------------------------------------------------------------

    async def _lower_checkpoints(
        self, log: Log, offset: int, recovery_point: int, *more: str
    ) -> None:
        """Make sure that no checkpoint includes records from `offset` on; also write `more`."""
        _lower_ends(log, offset, recovery_point)
        names = (file_names.RECOVERY_POINT_CHECKPOINT, file_names.HIGH_WATERMARK_CHECKPOINT)
        for name in (*names, *more):
            is_written = await self._write_checkpoint(log.log_dir, name)
            self._check_written(log, name, is_written)
        is_written = await self._lower_cleaned_end(log, offset)
        self._check_written(log, file_names.CLEANER_OFFSET_CHECKPOINT, is_written)

    def _check_written(self, log: Log, name: str, is_written: bool) -> None:
        _check_open(log)
        if not is_written:
            raise KafkaStorageError(
                f"cannot truncate {log.topic_partition}: {name} could not be written in"
                f" {log.log_dir}; free space on the disk"
            )

    def _remove_segments(self, log: Log, removed: Sequence[LogSegment], end_offset: int) -> None:
        """Rename segments, newest first, and unlink them. Runs as a job."""
        # A snapshot proves to recovery that all segments below it were durable, so one above the
        # new end would turn a half-finished truncation into damage.
        log.producer_state.snapshots.delete_above(end_offset)
        self._files.sync_dir(log.directory)
        for segment in reversed(removed):
            segment.rename(file_names.DELETED_SUFFIX)
            # Otherwise, a power loss could undo only some of the renames, and leave a gap.
            self._files.sync_dir(log.directory)
        # Readers keep the files open, so they need no time to close them.
        for segment in removed:
            segment.delete_files()

    def _end(self, log: Log, end_offset: int) -> None:
        """Record that the log ends at `end_offset` on disk, too; -1 if it was restarted."""
        del self._removed[log]
        self._sealing.forget(log, end_offset)
        log.ends_durably()


def _cut_after(log: Log, last: LogSegment, cut: _Cut) -> Sequence[LogSegment]:
    """End the log at `cut` in segment `last`, for all readers; return the removed segments."""
    removed = log.segments.remove_after(last)
    last.records.end_at(cut.position)
    log.unsynced.truncated(removed, last, cut.end_offset)
    log.log_end_offset = cut.end_offset
    log.leader_epochs.truncate_from_end(cut.end_offset)
    _lower_ends(log, cut.end_offset, last.base_offset)
    return removed


def _lower_ends(log: Log, offset: int, recovery_point: int) -> None:
    """Exclude the records from `offset` on from the checkpoints."""
    log.high_watermark = min(log.high_watermark, offset)
    log.durable_end_offset = min(log.durable_end_offset, offset)
    log.recovery_point = min(log.recovery_point, recovery_point)


def _find_cut(last: LogSegment, offset: int) -> _Cut:
    """Return the end of the last batch in `last` that is below `offset`. Runs as a job.

    The end is not `offset` itself if the log has a gap there: recovery takes missing offsets below
    the high watermark for damage. Raises OSError.
    """
    if offset <= last.base_offset:
        return _Cut(last.base_offset, 0)
    try:
        start = last.indexes.look_up(offset - 1, nowait=False).position
        return _last_batch_below(last, offset, start)
    except CorruptIndex:
        return _last_batch_below(last, offset, 0)


def _last_batch_below(last: LogSegment, offset: int, start: int) -> _Cut:
    cut = _Cut(last.base_offset, 0)
    # What follows damage is removed, too, and fetched from the leader again.
    with contextlib.suppress(CorruptMessage):
        for position, header in last.records.batches_from(start):
            if header.last_offset >= offset:
                break
            cut = _Cut(header.next_offset, position + header.size_bytes)
    return cut


def _bind_replay(
    segment: LogSegment, state: ProducerStateManager
) -> Callable[[int, BatchHeader], None]:
    def replay(position: int, header: BatchHeader) -> None:
        replay_producers(segment, position, header, state)

    return replay


def _check_open(log: Log) -> None:
    if log.closed or log.offline:
        raise log.not_open()
