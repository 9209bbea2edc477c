"""A log's appends while its disk is slow: prepared on the reactor, then written by jobs in order.

An append has two steps here. *Prepare* runs immediately, on the reactor: it assigns offsets to the
batch, and updates the producer's sequence number for the checks of later batches. *Write* is a job
on the directory's lane: it writes the batches prepared since the last job, and rolls the segment
once if necessary; batches that need another segment wait for the next job, behind the seal of the
first. When the job is done, the written batches are added to the log as in a synchronous
append: the log end offset advances, producer state and leader epochs are updated, and a sync is
requested. Until then, only this object holds the batches, so there is nothing to undo in the log if
a write fails. The failed batch and all batches prepared after it are dropped, and their appends
fail with the error (`Writing.error`).

A `Log` creates a `SlowDiskWrites` for the first append of this kind, and drops the object when no
append is pending. Used on the reactor's thread, except for the functions that run in a job.
segment/log_segment.py performs the file operations.

Source: docs/decisions/0007-slow-directories-write-on-their-lane.md. Invariants: each log has at
most one job at a time; readers see the segments as of the last finished job (`written_bytes`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from plog.errors import KafkaError, KafkaStorageError
from plog.records.batch import BatchHeader, set_base_offset_and_epoch
from plog.records.control import read_markers
from plog.types import TopicPartition
from plogd.log.batch_validator import AppendOrigin, ValidatedBatch
from plogd.log.disk.group_commit import SyncRounds
from plogd.log.disk.slow_disk import SlowDisk
from plogd.log.io_errors import HalfWritten
from plogd.log.log_results import AppendInfo, Writing
from plogd.log.producer_state import BatchMetadata, ProducerStateManager
from plogd.log.replicated_batches import segment_base_offset
from plogd.log.segment.log_segment import LogSegment
from plogd.log.segment.segment_roll import make_successor, must_roll
from plogd.log.segment.segments import Segments
from plogd.log.segment.transaction_index import AbortedTransaction
from plogd.notify_all import notify_all
from plogd.ports import Files, Later
from plogd.topic_config import TopicConfig
from plogd.waiters import Waiters

_GROUP_BYTES = 1 << 20
"""A job of this size does not accept any more batches, so that its first append completes soon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A batch that has its offsets and is waiting to be written."""

    batch: ValidatedBatch
    first_offset: int
    leader_epoch: int
    now_ms: int
    segment_base_offset: int
    """The base offset of a segment that this batch begins."""
    is_replicated: bool
    writing: Writing

    @property
    def last_offset(self) -> int:
        """The offset of the batch's last record."""
        return self.first_offset + self.batch.header.last_offset_delta


@dataclass(slots=True)
class _Outcome:
    """The outcome of a job."""

    written: int = 0
    """Number of batches written, from the start of the group."""
    rolled: dict[int, LogSegment] = field(default_factory=dict)
    """New segments, by the position in the group of the batch that required the segment."""
    error: Exception | None = None
    """The reason why the remaining batches were not written."""
    slowest_ms: float = 0.0
    """The duration of the slowest write."""


class WrittenLog(Protocol):
    """The parts of a `Log` that `SlowDiskWrites` and follower_append.py use."""

    topic_partition: TopicPartition
    directory: str
    log_dir: str
    producer_state: ProducerStateManager
    log_start_offset: int
    log_end_offset: int
    offline: bool
    closed: bool
    on_durable: Callable[[], None]
    on_bug: Callable[[str, Exception], None]

    @property
    def config(self) -> TopicConfig:
        """The topic's settings."""
        ...

    @property
    def segments(self) -> Segments:
        """All segments; the active one receives appends."""
        ...

    def appended(
        self,
        header: BatchHeader,
        first_offset: int,
        leader_epoch: int,
        view: memoryview,
        sync_bytes: int,
    ) -> None:
        """Add a batch that is already in the active segment's file; see `Log.appended`."""
        ...

    def rolled(self, new: LogSegment) -> None:
        """Make `new` the active segment."""
        ...

    def disk_failed(self, what: str, error: OSError) -> KafkaStorageError:
        """Report a failed write, and return the error for the client."""
        ...

    def writes_ended(self) -> None:
        """Return to synchronous appends, because every prepared batch is written or has failed."""
        ...


class SlowDiskWrites:
    """The batches of one log that are prepared, but have neither been written nor failed yet."""

    def __init__(self, log: WrittenLog, files: Files, rounds: SyncRounds, writes: SlowDisk) -> None:
        self._log = log
        self._files = files
        self._rounds = rounds
        self._writes = writes
        self.end_offset = log.log_end_offset
        """The end offset of the prepared batches."""
        # Contains only producers with prepared batches; the log has the state of all other
        # producers.
        self._producers = log.producer_state.successor()
        """The state of producers after the prepared batches."""
        self._waiting: deque[Prepared] = deque()
        self._group: Sequence[Prepared] = ()
        self._done_bytes = 0
        """Number of bytes in written or failed batches that still count as unsynced bytes."""
        self._waiting_for_end: Waiters[None] = Waiters()
        self.is_busy = False
        """Whether a job is in progress or pending."""
        self.written_bytes = log.segments.active.size_bytes
        """Number of bytes in the active segment that belong to the log."""

    # -- prepare ------------------------------------------------------------------------------

    def append(
        self, batch: ValidatedBatch, *, leader_epoch: int, now_ms: int, origin: AppendOrigin
    ) -> AppendInfo:
        """Assign offsets to the batch and submit a copy of it for writing.

        A replicated batch keeps its offsets. Raises the same errors as
        `ProducerStateManager.check`.
        """
        duplicate = self._check(batch.header, origin)
        if duplicate is not None:
            return AppendInfo(
                first_offset=duplicate.first_offset,
                last_offset=duplicate.last_offset,
                log_append_time_ms=-1,
                log_start_offset=self._log.log_start_offset,
                duplicate=True,
                writing=self._writing_of(duplicate.last_offset),
            )
        # A copy, because the memory of a request is reused when its handler returns.
        view = memoryview(bytearray(batch.view))
        is_replicated = origin is AppendOrigin.REPLICATION
        first_offset = batch.header.base_offset if is_replicated else self.end_offset
        set_base_offset_and_epoch(view, 0, first_offset, leader_epoch)
        prepared = Prepared(
            batch=batch._replace(view=view),
            first_offset=first_offset,
            leader_epoch=leader_epoch,
            now_ms=now_ms,
            segment_base_offset=segment_base_offset(self.end_offset, batch.header)
            if is_replicated
            else first_offset,
            is_replicated=is_replicated,
            writing=Writing(),
        )
        if batch.header.is_control:
            # Otherwise, batches of an epoch that the marker has fenced would be accepted.
            self._producers.complete_transaction(batch.header, view, first_offset, _ignore)
        elif batch.header.producer_id >= 0:
            self._producers.update(batch.header, first_offset=first_offset)
        self.end_offset = prepared.last_offset + 1
        self._waiting.append(prepared)
        # Prepared bytes count as unsynced bytes, so that a slow disk does not exhaust memory.
        self._rounds.hold(view.nbytes)
        # If a job is in progress, `_continue` submits the batch when that job has ended.
        if not self.is_busy:
            self._submit()
        return AppendInfo(
            first_offset=prepared.first_offset,
            last_offset=prepared.last_offset,
            log_append_time_ms=batch.log_append_time_ms,
            log_start_offset=self._log.log_start_offset,
            writing=prepared.writing,
        )

    def _check(self, header: BatchHeader, origin: AppendOrigin) -> BatchMetadata | None:
        """Check a batch as `ProducerStateManager.check` does, including the prepared batches."""
        producer_id = header.producer_id
        if producer_id not in self._producers.producers:
            known = self._log.producer_state.producers.get(producer_id)
            # The log's own check also covers rejected batches of producers without state.
            if known is None:
                return self._log.producer_state.check(header, origin)
            # A copy, because a failed write must not change the state of the log.
            self._producers.producers[producer_id] = known.copy()
        return self._producers.check(header, origin)

    def _writing_of(self, last_offset: int) -> Writing | None:
        """Return the state of the batch that ends at `last_offset`; None if already in the log."""
        for prepared in (*self._group, *self._waiting):
            if prepared.last_offset == last_offset:
                return prepared.writing
        return None

    def ended(self) -> Later[None]:
        """Wait until every prepared batch is written or has failed."""
        return self._waiting_for_end.wait()

    def roll(self) -> None:
        """Start a new segment although no batch requires it. No job may be in progress."""
        assert not self.is_busy
        self.is_busy = True
        log, outcome = self._log, _Outcome()
        old, base_offset, config = log.segments.active, log.log_end_offset, log.config

        def roll() -> _Outcome:
            try:
                outcome.rolled[0] = make_successor(
                    self._files, log.directory, old, base_offset, config
                )
            except Exception as error:
                outcome.error = error
            return outcome

        self._writes.submit(roll).then(self._ended, self._job_failed)

    # -- write: on the lane's thread ----------------------------------------------------------

    def _submit(self) -> None:
        group, nbytes = [self._waiting.popleft()], 0
        while self._waiting and nbytes < _GROUP_BYTES:
            nbytes += len(self._waiting[0].batch.view)
            group.append(self._waiting.popleft())
        self._group, self.is_busy = group, True
        active, config = self._log.segments.active, self._log.config
        self._writes.submit(lambda: self._write(group, active, config)).then(
            self._ended, self._job_failed
        )

    def _write(
        self, group: Sequence[Prepared], segment: LogSegment, config: TopicConfig
    ) -> _Outcome:
        """Write the batches in order, up to the first failure or second roll. Runs as a job."""
        outcome = _Outcome()
        try:
            for number, prepared in enumerate(group):
                started_ms = self._writes.monotonic_ms()
                batch, now_ms = prepared.batch, prepared.now_ms
                if must_roll(segment, batch, prepared.last_offset, config, now_ms):
                    if outcome.rolled:
                        break
                    segment = make_successor(
                        self._files,
                        self._log.directory,
                        segment,
                        prepared.segment_base_offset,
                        config,
                    )
                    outcome.rolled[number] = segment
                # Only a job can still reject the marker if the file cannot be created.
                if _has_abort(batch) and segment.transactions.index is None:
                    segment.transactions.open()
                if prepared.is_replicated:
                    segment.append_batches(batch.view, [(0, batch.header)])
                else:
                    segment.append(
                        batch.view,
                        prepared.last_offset,
                        batch.max_timestamp,
                        prepared.first_offset + batch.max_timestamp_offset_delta,
                    )
                outcome.written += 1
                took_ms = self._writes.monotonic_ms() - started_ms
                outcome.slowest_ms = max(outcome.slowest_ms, took_ms)
        except Exception as error:
            outcome.error = error
        return outcome

    # -- the outcome --------------------------------------------------------------------------

    def _ended(self, outcome: _Outcome) -> None:
        log, group = self._log, self._group
        self._group, self.is_busy = (), False
        self._writes.took(outcome.slowest_ms)
        # A closed or offline log must remain unchanged, so all batches in the job fail.
        if log.closed or log.offline:
            for segment in outcome.rolled.values():
                segment.close()
            outcome.written, outcome.rolled = 0, {}
        for number, prepared in enumerate(group[: outcome.written]):
            self._adopt_segment(outcome, number)
            header = prepared.batch.header
            try:
                view = prepared.batch.view
                log.appended(header, prepared.first_offset, prepared.leader_epoch, view, len(view))
            except Exception as error:
                log.on_bug("adding a written batch to the log", error)
                # HalfWritten has no errno, so it takes the directory offline: nothing may be
                # appended after a batch that is in the file but not in the log.
                outcome.error = HalfWritten(
                    f"a batch is in the file, but not in the log: {error!r}"
                )
                outcome.written = number
                break
            self._done_bytes += len(prepared.batch.view)
            prepared.writing.is_written = True
        else:
            # From `roll`, or from a roll that succeeded before the write of its batch failed.
            self._adopt_segment(outcome, outcome.written)
        self.written_bytes = log.segments.active.size_bytes
        unwritten = group[outcome.written :]
        if outcome.error is not None or log.closed or log.offline:
            self._fail(unwritten, outcome.error)
        else:
            self._waiting.extendleft(reversed(unwritten))
        self._continue()

    def _adopt_segment(self, outcome: _Outcome, number: int) -> None:
        segment = outcome.rolled.get(number)
        if segment is not None:
            self._log.rolled(segment)

    def _job_failed(self, error: Exception) -> None:
        """Handle a bug in a job. It is then unknown how many batches are in the file."""
        group, self._group, self.is_busy = self._group, (), False
        self._log.on_bug("running an append job", error)
        # HalfWritten takes the log directory offline; recovery then checks the file.
        self._fail(group, HalfWritten(f"an append job failed: {error!r}"))
        self._continue()

    def _fail(self, unwritten: Sequence[Prepared], error: Exception | None) -> None:
        """Fail these batches and all batches prepared after them."""
        log = self._log
        reason: KafkaError
        if error is None:
            reason = KafkaStorageError(
                f"{log.topic_partition}: {log.log_dir} is offline, or the log is closed"
            )
        elif isinstance(error, OSError):
            reason = log.disk_failed("append", error)
        else:
            log.on_bug(f"appending to {log.topic_partition} on a slow disk", error)
            reason = KafkaError("unexpected error; see the broker log")
        # The waiting batches fail, too, because their offsets follow those of the failed batch.
        for prepared in (*unwritten, *self._waiting):
            prepared.writing.error = reason
            # The producer must send this batch again before its later batches (rule R15).
            log.producer_state.note_refused(prepared.batch.header)
            self._done_bytes += len(prepared.batch.view)
        self._waiting.clear()

    def _continue(self) -> None:
        if self._waiting:
            self._submit()
        else:
            self._log.writes_ended()
            self._waiting_for_end.succeed(None)
        done_bytes, self._done_bytes = self._done_bytes, 0
        # The bytes are released last: appends that wait for room may then run, even in this log.
        notify_all([self._log.on_durable, lambda: self._rounds.hold(-done_bytes)])


def _has_abort(batch: ValidatedBatch) -> bool:
    """Return whether a batch contains an abort marker."""
    header = batch.header
    return header.is_control and any(
        not marker.is_commit for marker in read_markers(batch.view, header)
    )


def _ignore(aborted: AbortedTransaction) -> None:
    """Add no entry to the transaction index; `Log.appended` adds it after the write."""
