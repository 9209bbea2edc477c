"""A partition's log: an append-only sequence of record batches in segment files.

`Log` assigns offsets, requests syncs, and maps a read to a slice of a segment file. Other modules
validate batches (batch_validator.py), check producers' sequence numbers (producer_state.py),
implement a single segment (segment/), recover a log after a crash (recovery/), and manage all logs
of a broker (log_manager.py). replica/partition.py decides whether an append is allowed and which
offsets consumers can read.

Called on the reactor's thread. A log has three ends: the high watermark, the durable end D and the
log end offset (docs/architecture.md, "Group commit"). Appends and rolls write synchronously unless
the disk is slow (disk/slow_disk_writes.py). Syncs, seals and deletions run as jobs.

Source: Kafka 3.9 UnifiedLog and LocalLog; the Kafka paper (NetDB 2011), section 3.1. Invariant: an
append that raises an exception does not leave bytes in the file or change any state.
"""

from __future__ import annotations

from collections.abc import Callable

from plog.errors import KafkaError, KafkaStorageError
from plog.records.batch import BatchHeader, set_base_offset_and_epoch
from plog.records.produced_batch import check_produced_batch
from plogd.log import retention
from plogd.log.batch_validator import AppendOrigin, BatchRules, ValidatedBatch, validate_batch
from plogd.log.clean_stop import sync_for_clean_stop
from plogd.log.disk.group_commit import SyncRounds, SyncTicket
from plogd.log.disk.slow_disk import SLOW_WRITE_MS, SlowDisk
from plogd.log.disk.slow_disk_writes import SlowDiskWrites
from plogd.log.follower_append import append_replicated_batches
from plogd.log.io_errors import describe
from plogd.log.log_reader import LogReader
from plogd.log.log_results import AppendInfo, FetchData
from plogd.log.log_state import LogHooks, LogState
from plogd.log.replicated_batches import check_replicated_batches
from plogd.log.segment.log_segment import LogSegment
from plogd.log.segment.segment_roll import check_fits, make_successor
from plogd.log.segment.segments import Segments
from plogd.log.unsynced import Unsynced
from plogd.ports import Files, Later
from plogd.topic_config import TopicConfig


class Log:
    """A log on disk, with `log_start_offset` <= `high_watermark` <= `log_end_offset`."""

    def __init__(
        self,
        state: LogState,
        *,
        files: Files,
        rounds: SyncRounds,
        writes: SlowDisk,
        hooks: LogHooks[Log],
        flush_before_visible: bool,
    ) -> None:
        self.topic_partition = state.topic_partition
        self.topic_id = state.topic_id
        self.directory = state.directory
        self.log_dir = state.log_dir
        self._flush_before_visible = flush_before_visible
        """Whether only durable records are acknowledged and readable."""
        self.config = state.config
        self.leader_epochs = state.leader_epochs
        self.producer_state = state.producer_state
        self.log_start_offset = state.log_start_offset
        self.log_end_offset = state.log_end_offset
        # A loaded log is durable: a clean stop or recovery has synced it (rule R13).
        self.durable_end_offset = state.log_end_offset
        self.high_watermark = state.high_watermark
        self.recovery_point = state.recovery_point
        self.on_durable: Callable[[], None] = lambda: None
        """Called when the durable end advances, and after each job that writes to a slow disk."""
        self.offline = self.closed = False
        self.is_truncating = False
        """Whether records are being removed from the end, so that nothing may be written."""
        self.rewrites = 0
        """Number of truncations and compactions; each makes facts about segments out of date."""
        self.restarts = 0
        """Number of times all records were removed, so that base offsets were used again."""
        self.refuses_writes = False
        """Set while the disk is too full for a record of this broker's leader epoch (rule R6)."""
        self._segments = Segments(state.segments)
        self._files = files
        self._rounds = rounds
        self._writes = writes
        self._lane: SlowDiskWrites | None = None  # Appends not yet written to a slow disk.
        self._hooks = hooks
        self.on_bug = hooks.on_bug
        self.unsynced = Unsynced(self._segments.active, state.log_end_offset)
        """The parts that are not durable yet."""
        self._reader = LogReader(self._segments, state.log_end_offset)

    # -- reading state ------------------------------------------------------------------------

    @property
    def config(self) -> TopicConfig:
        """The topic's settings; new settings take effect immediately."""
        return self._config

    @config.setter
    def config(self, config: TopicConfig) -> None:
        self._config = config
        self.rules = BatchRules.of(config)
        self._acks_durable_only = config.flush_messages == 1 or self._flush_before_visible

    @property
    def last_stable_offset(self) -> int:
        """The end of the records that read_committed consumers can read."""
        if self.is_truncating:  # A transaction is open again if its marker is being removed.
            return self.log_start_offset
        stable = self.producer_state.transactions.stable_offset(self.high_watermark)
        # DeleteRecords may have removed the beginning of an open transaction.
        return max(stable, self.log_start_offset)

    @property
    def acknowledged_end_offset(self) -> int:
        """The end of the records that this replica can acknowledge (A in rule R1)."""
        return self.durable_end_offset if self._acks_durable_only else self.log_end_offset

    @property
    def size_bytes(self) -> int:
        """Total size of the ``.log`` files of all segments, in bytes."""
        return sum(segment.size_bytes for segment in self._segments)

    @property
    def is_writable(self) -> bool:
        """Whether the log is open and online, and is not being truncated."""
        return not (self.closed or self.offline or self.is_truncating)

    @property
    def is_written_directly(self) -> bool:
        """Whether appends run on the reactor's thread, because the disk is fast."""
        return self.is_writable and self._lane is None and not self._writes.is_slow

    @property
    def segments(self) -> Segments:
        """The segments in offset order."""
        return self._segments

    # -- append -------------------------------------------------------------------------------

    def append_as_leader(
        self,
        batch: memoryview | ValidatedBatch,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> AppendInfo:
        """Assign offsets to `batch`, write it and request a sync.

        Changes the batch in place. A `ValidatedBatch` is not validated again. If the batch is
        rejected, raises the `KafkaError` for the client and appends nothing. On a slow disk, the
        write can still fail after this method has returned: see `AppendInfo.writing`.
        """
        if self.offline or self.closed or self.is_truncating:
            raise self.not_open()
        # Rule R6: otherwise, two records could have the same offset and epoch.
        assert leader_epoch >= self.leader_epochs.latest_epoch, "a deposed leader must not append"
        if not isinstance(batch, ValidatedBatch):
            rules, header = self.rules, None
            if rules.is_plain and origin is AppendOrigin.CLIENT:
                header = check_produced_batch(batch, rules.max_bytes, now_ms + rules.max_ahead_ms)
            if header is not None:
                batch = ValidatedBatch.unchanged(batch, header)
            else:  # The batch is invalid, or another rule applies to it.
                batch = validate_batch(batch, rules=rules, now_ms=now_ms, origin=origin)
        # While jobs are still writing earlier batches, a synchronous append would overtake them.
        by_job = self._lane is not None or self._writes.is_slow
        # SlowDiskWrites has its own check, which includes batches that are not written yet.
        if not by_job and batch.header.producer_id >= 0:
            duplicate = self.producer_state.check(batch.header, origin)
            if duplicate is not None:
                first, last = duplicate.first_offset, duplicate.last_offset
                return AppendInfo(first, last, -1, self.log_start_offset, duplicate=True)
        try:
            if self.refuses_writes:
                why = "no disk space to record this broker's leader epoch; free space on the disk"
                raise KafkaStorageError(f"cannot append to {self.topic_partition}: {why}")
            check_fits(self.topic_partition, len(batch.view), self._config)
            if by_job:
                return self._append_by_job(batch, leader_epoch, now_ms, origin)
            return self._append(batch, leader_epoch, now_ms)
        except Exception as error:
            # A producer does not retry a batch that breaks a rule. It retries any other rejected
            # batch, which must be appended before the producer's later batches (rule R15).
            if isinstance(error, KafkaStorageError) or not isinstance(error, KafkaError):
                self.producer_state.note_refused(batch.header)
            raise

    def _append(self, batch: ValidatedBatch, leader_epoch: int, now_ms: int) -> AppendInfo:
        view, header, max_timestamp, delta, time_ms = batch
        writes, config = self._writes, self._config
        started_ms = writes.monotonic_ms()
        first_offset = self.log_end_offset
        last_offset = first_offset + header.last_offset_delta
        # In place: the batch's checksum does not cover these two fields.
        set_base_offset_and_epoch(view, 0, first_offset, leader_epoch)
        info = AppendInfo.written(first_offset, last_offset, time_ms, self.log_start_offset)
        segment = self._segments.active
        try:
            if segment.should_roll(config, len(view), max_timestamp, last_offset, now_ms):
                self.roll()
                segment = self._segments.active
            position = segment.append(view, last_offset, max_timestamp, first_offset + delta)
            try:
                took_ms = writes.monotonic_ms() - started_ms
                # As long as the disk is fast, `took` ignores fast writes.
                if took_ms > SLOW_WRITE_MS:
                    writes.took(took_ms)
                self.appended(header, first_offset, leader_epoch, view, len(view))
            except Exception as error:
                segment.undo_append(position, error)
                raise
        except OSError as error:
            raise self.disk_failed("append", error) from error
        return info

    def append_as_follower(
        self, data: memoryview, *, leader_epoch: int, now_ms: int
    ) -> AppendInfo | None:
        """Append the whole batches in `data`, as the leader of `leader_epoch` wrote them.

        Ignores an incomplete last batch and batches of a later epoch; returns None if none is left.
        Appends nothing if a check fails (CorruptMessage, UnsupportedForMessageFormat), or if the
        log ends inside the first batch (UnexpectedAppendOffset; see follower_append.py). Batches
        that precede a failed write remain. On a slow disk, `AppendInfo.writing` is the last write.
        """
        if self.offline or self.closed or self.is_truncating:
            raise self.not_open()
        end_offset = self.log_end_offset if self._lane is None else self._lane.end_offset
        batches = check_replicated_batches(data, next_offset=end_offset, leader_epoch=leader_epoch)
        if not batches:
            return None
        if self._lane is None and not self._writes.is_slow:
            append_replicated_batches(self, data, batches, writes=self._writes, now_ms=now_ms)
            writing = None
        else:
            for batch in batches:
                validated = ValidatedBatch.unchanged(batch.of(data), batch.header)
                epoch = batch.header.partition_leader_epoch
                info = self._append_by_job(validated, epoch, now_ms, AppendOrigin.REPLICATION)
                writing = info.writing
        first, last = batches[0].header.base_offset, batches[-1].header.last_offset
        return AppendInfo(first, last, -1, self.log_start_offset, writing=writing)

    def disk_failed(self, what: str, error: OSError) -> KafkaStorageError:
        """Report a failed operation, and return the error for the client."""
        self._hooks.operation_failed(self.log_dir, error)
        return KafkaStorageError(
            f"{self.topic_partition}: cannot {what} in {self.log_dir}: {describe(error)}"
        )

    def appended(
        self,
        header: BatchHeader,
        first_offset: int,
        leader_epoch: int,
        view: memoryview,
        sync_bytes: int,
    ) -> None:
        """Add a batch, already written to the active segment, to the log.

        Requests a sync of `sync_bytes` if one is due; with 0, the caller does that. If this raises,
        the batch is not part of the log.
        """
        segment = self._segments.active
        end_offset = first_offset + header.last_offset_delta + 1
        self.unsynced.written_to(segment)
        wants_sync = sync_bytes > 0 and self._is_sync_due(end_offset)
        if wants_sync:
            self._rounds.request(self, sync_bytes)
        if leader_epoch > self.leader_epochs.latest_epoch:
            self.leader_epochs.assign(leader_epoch, first_offset)
        if header.producer_id >= 0 and header.is_control:
            add_aborted = self._segments.add_aborted
            self.producer_state.complete_transaction(header, view, first_offset, add_aborted)
        elif header.producer_id >= 0:
            self.producer_state.update(header, first_offset=first_offset)
        # Set last: if a step above raises, the batch is not part of the log. A sync request or an
        # epoch without records may remain, but is harmless.
        self.log_end_offset = end_offset
        if wants_sync:
            self.unsynced.requested(end_offset)
        if segment.size_bytes >= segment.preallocate_at:
            self._hooks.preallocate(self, segment)

    def _append_by_job(
        self, batch: ValidatedBatch, leader_epoch: int, now_ms: int, origin: AppendOrigin
    ) -> AppendInfo:
        """Append in a job, because the disk is slow or jobs are still writing earlier batches."""
        lane = self._lane or SlowDiskWrites(self, self._files, self._rounds, self._writes)
        info = lane.append(batch, leader_epoch=leader_epoch, now_ms=now_ms, origin=origin)
        if lane.is_busy:
            self._lane = lane
        return info

    def writes_ended(self) -> None:
        """Return to synchronous appends, because every prepared batch is written or has failed."""
        self._lane = None
        if self.closed:  # `close` has left this segment open for the job.
            self._segments.active.close()

    def not_open(self) -> KafkaStorageError:
        """Return the error for an operation on an offline, closed or truncating log."""
        why = "the log is being truncated"
        if self.offline or self.closed:
            why = f"{self.log_dir} is offline" if self.offline else "the log is closed"
        return KafkaStorageError(f"{self.topic_partition}: {why}")

    # -- becoming durable ---------------------------------------------------------------------

    @property
    def has_unflushed(self) -> bool:
        """Whether the log has appended records for which no sync has been requested."""
        return self.unsynced.requested_end_offset < self.log_end_offset

    def flush_if_overdue(self, now_ms: float) -> None:
        """Request a sync if the oldest unflushed append has waited for ``flush.ms``."""
        is_overdue = self.unsynced.is_overdue(self.log_end_offset, now_ms, self.config.flush_ms)
        if is_overdue and self.is_writable:
            self.request_sync()

    def request_sync_if_due(self, nbytes: int) -> None:
        """Request a sync of the last `nbytes` if the settings require one."""
        if nbytes and self._is_sync_due(self.log_end_offset):
            self.request_sync(nbytes)

    def _is_sync_due(self, end_offset: int) -> bool:
        """Return whether the records below `end_offset` must be synced now."""
        unrequested = end_offset - self.unsynced.requested_end_offset
        return unrequested >= self._config.flush_messages or self._flush_before_visible

    def request_sync(self, nbytes: int = 0) -> None:
        """Include the whole log in the next sync round."""
        self._rounds.request(self, nbytes)
        self.unsynced.requested(self.log_end_offset)

    def begin_sync(self) -> SyncTicket | None:
        """Return the files to sync and the end that becomes durable; None if closed or offline."""
        if not self.is_writable:
            return None
        directory = self.directory if self.unsynced.has_new_files else None
        files = self.unsynced.take_files()
        end_offset = self.log_end_offset
        self._reader.note_end(end_offset, self.active_size)
        return SyncTicket(log=self, end_offset=end_offset, files=files, directory=directory)

    def complete_sync(self, ticket: SyncTicket) -> None:
        """Advance the durable end to the ticket's end, and notify `on_durable`."""
        if self.closed or self.offline:
            return
        assert ticket.end_offset <= self.log_end_offset
        if ticket.end_offset > self.durable_end_offset:
            self.durable_end_offset = ticket.end_offset
            self.on_durable()

    def roll(self, base_offset: int | None = None) -> None:
        """Start a new active segment at the log end offset; a job seals the old one.

        `base_offset` is that of the next batch if it follows a gap, which an index entry might not
        be able to represent.
        """
        old = self._segments.active
        base_offset = self.log_end_offset if base_offset is None else base_offset
        assert base_offset > old.base_offset, "an empty segment needs no successor"
        try:
            new = make_successor(self._files, self.directory, old, base_offset, self.config)
        except OSError as error:
            raise self.disk_failed("roll", error) from error
        self.rolled(new)

    def rolled(self, new: LogSegment) -> None:
        """Make `new`, in which the next batch belongs, the active segment. Never raises."""
        old = self._segments.active
        # A replicated batch may follow a gap.
        self.log_end_offset = max(self.log_end_offset, new.base_offset)
        self.unsynced.rolled(new)
        self._segments.add(new)
        try:
            self._hooks.report(
                "rolled segment of {topic_partition} at offset {offset}",
                topic_partition=self.topic_partition,
                offset=self.log_end_offset,
            )
            self._hooks.seal(self, old, self.log_end_offset)
        # Not raised: without the seal, recovery reads the segment again, so no records are lost.
        except Exception as error:
            self.on_bug(f"sealing a segment of {self.topic_partition}", error)

    def sealed(self, segment: LogSegment) -> None:
        """Record that `segment` and its indexes are durable, so that recovery skips them."""
        if self.unsynced.sealed(segment):
            segment.on_sealed()
        # After a clean stop, the recovery point is above the base offset of the active segment.
        self.recovery_point = max(self.recovery_point, self.unsynced.first_unsealed_offset)

    def go_offline(self) -> None:
        """Reject appends and syncs from now on, because the log directory has failed."""
        self.offline = True

    # -- read ---------------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        end_offset: int,
        at_least_one: bool = True,
        read_committed: bool = False,
        nowait: bool = False,
    ) -> FetchData:
        """Return batches, starting with the one that contains `offset`, as a slice of one segment.

        The batches end below `end_offset`: the high watermark, the last stable offset, or the log
        end offset for followers. With `at_least_one`, the first batch is whole even if it exceeds
        `max_bytes`. With `read_committed`, the result includes aborted transactions. Costs one
        index lookup. Raises OffsetOutOfRange, KafkaStorageError; with `nowait`, also
        UncachedLookup.
        """
        try:
            return self._reader.read(
                self,
                offset,
                max_bytes,
                end_offset=end_offset,
                at_least_one=at_least_one,
                read_committed=read_committed,
                nowait=nowait,
            )
        except OSError as error:
            raise self.disk_failed("read", error) from error

    @property
    def active_size(self) -> int:
        """The number of bytes in the active segment that belong to the log."""
        lane = self._lane
        return self._segments.active.size_bytes if lane is None else lane.written_bytes

    # -- truncation ---------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> Later[None]:
        """Remove the batches that end at or above `offset`, durably; see truncation.py.

        The log then ends at `offset`, or at the base offset of a batch that contains it. If the log
        begins above `offset`, all records are removed. Fails with KafkaStorageError.
        """
        return self._hooks.truncate(self, offset, False)

    def truncate_fully(self, start: int) -> Later[None]:
        """Remove all records, durably, and begin the log at offset `start`.

        Fails with KafkaStorageError.
        """
        return self._hooks.truncate(self, start, True)

    async def stop_writes(self) -> None:
        """Reject writes from now on, and wait for the writes and the sync in progress."""
        if self.closed or self.offline:
            raise self.not_open()
        self.is_truncating = True
        self.rewrites += 1
        await self.lane_writes_ended()
        await self._rounds.round_ended()

    async def lane_writes_ended(self) -> None:
        """Wait until no job is writing to a slow disk."""
        while self._lane is not None:
            await self._lane.ended()

    def resume_writes(self) -> None:
        """Accept writes again."""
        self.is_truncating = False
        # The requests made in the meantime were dropped, and others may be waiting for the end.
        if self.durable_end_offset < self.log_end_offset:
            self.request_sync()

    def ends_durably(self) -> None:
        """Record that the truncated log is on disk."""
        self.durable_end_offset = self.log_end_offset
        self._reader.note_end(self.log_end_offset, self.active_size)
        self.on_durable()

    # -- retention ----------------------------------------------------------------------------

    def apply_retention(self, now_ms: int) -> int:
        """Delete segments that retention selects or that precede the log start; return how many."""
        return retention.apply_retention(self, now_ms, self._hooks.report)

    def delete_records_before(self, offset: int) -> None:
        """Advance the log start offset to `offset`, and delete the segments below it.

        A crash can undo the deletion until `LogManager.write_log_start_of` has completed. Raises
        KafkaStorageError, or OffsetOutOfRange if `offset` is negative or above the high watermark.
        """
        retention.delete_records_before(self, offset, self._hooks.report)

    @property
    def is_being_written(self) -> bool:
        """Whether a job may be writing to the active segment, because the disk is slow."""
        return self._lane is not None

    def roll_soon(self) -> None:
        """Start a new active segment, in a job if the disk is slow. Raises KafkaStorageError."""
        if self._writes.is_slow:
            self._lane = SlowDiskWrites(self, self._files, self._rounds, self._writes)
            self._lane.roll()
        else:
            self.roll()

    def drop_first_segments(self, count: int) -> None:
        """Remove the `count` oldest segments and delete their files later."""
        removed = self._segments.remove_first(count)
        self.unsynced.drop(removed)
        self.recovery_point = max(self.recovery_point, self.unsynced.first_unsealed_offset)
        self._hooks.retire(self, removed)

    # -- closing ------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the files without syncing them; files of regions that readers hold stay open."""
        self.closed = True
        self.on_durable = lambda: None  # Breaks a cycle: the partition refers back to this log.
        for segment in self._segments:
            # A job may be writing to the active segment; `writes_ended` closes it then.
            if self._lane is None or segment is not self._segments.active:
                segment.close()

    def close_durably(self) -> None:
        """Sync and close all files, so that the next startup can skip recovery of this log.

        Runs as a job, while no append runs. Raises OSError.
        """
        assert self._lane is None, "a job is still writing"
        if self.is_truncating:
            raise OSError(f"{self.topic_partition} is only partly truncated")
        sync_for_clean_stop(self, self._files)
        self.close()
