"""A log's appends while its directory is slow: prepared at once, written by jobs, in order.

An append has two steps then. *Prepare* is done at once, on the reactor: the batch is checked and
gets its offsets, and its producer's sequence counts. *Write* is a job on the directory's lane, for
all batches that have gathered since the last one; it rolls the segment where it is full. What the
job has written becomes part of the log when its outcome arrives, by the very steps of an append
that was made at once: the log's end rises, producers and leader epochs are noted, a sync is asked
for. So nothing but this object knows of a batch before it is in the file, and there is nothing to
undo in memory when a write fails, whatever is raised: this batch and those prepared after it, whose
offsets follow from it, are forgotten, and their appends get the error (`Writing.error`).

Belongs to one `Log`, from the first such append until none is left. Reactor thread but for `_write`
and what it calls. A write is that of segment_writes.py, as for appends that are made at once.
Source: docs/decisions/0007-slow-directories-write-on-their-lane.md.
Invariants: one job at a time for each log; readers see the segments as they were when the last
outcome arrived (`written_bytes`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from plog.errors import KafkaError, KafkaStorageError
from plog.records.batch import BatchHeader, set_base_offset_and_epoch
from plog.types import TopicPartition
from plogd.log.batch_validator import AppendOrigin, ValidatedBatch
from plogd.log.disk.group_commit import SyncRounds
from plogd.log.disk.slow_disk import SlowDisk
from plogd.log.io_errors import HalfWritten
from plogd.log.log_results import AppendInfo, Writing
from plogd.log.producer_state import BatchMetadata, ProducerStateManager
from plogd.log.segment.log_segment import LogSegment
from plogd.log.segment.segment_writes import make_successor, must_roll, write_batch
from plogd.log.segment.segments import Segments
from plogd.notify_all import notify_all
from plogd.ports import Files
from plogd.topic_config import TopicConfig

_GROUP_BYTES = 1 << 20
"""What one job writes at most, but for a single larger batch: so outcomes come bit by bit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A batch that has its offsets, and waits to be written."""

    batch: ValidatedBatch
    first_offset: int
    leader_epoch: int
    now_ms: int
    writing: Writing

    @property
    def last_offset(self) -> int:
        """Of its records."""
        return self.first_offset + self.batch.header.last_offset_delta


@dataclass(slots=True)
class _Outcome:
    """What a job has done."""

    written: int = 0
    """How many batches, from the first on."""
    rolled: dict[int, LogSegment] = field(default_factory=dict)
    """New segments, by the number of the batch each was made for."""
    error: Exception | None = None
    """Why the other batches are not written."""
    slowest_ms: float = 0.0


class WrittenLog(Protocol):
    """What `LaneWrites` needs of the `Log` whose appends it makes."""

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
        """All segments; the active one is appended to."""
        ...

    def appended(self, header: BatchHeader, first_offset: int, leader_epoch: int) -> None:
        """Make a batch that is in the active segment's file a part of the log."""
        ...

    def rolled(self, new: LogSegment) -> None:
        """Make `new` the active segment."""
        ...

    def disk_failed(self, what: str, error: OSError) -> KafkaStorageError:
        """Report a failed write, and return the error for the client."""
        ...

    def writes_ended(self) -> None:
        """Note that everything prepared has been written or has failed."""
        ...


class LaneWrites:
    """See the module's text."""

    def __init__(self, log: WrittenLog, files: Files, rounds: SyncRounds, writes: SlowDisk) -> None:
        self._log = log
        self._files = files
        self._rounds = rounds
        self._writes = writes
        self._end_offset = log.log_end_offset
        """The end of what is prepared."""
        self._producers = ProducerStateManager(
            files, log.directory, expiration_ms=log.producer_state.expiration_ms
        )
        """Those that what is prepared changes, as they will be."""
        self._waiting: deque[Prepared] = deque()
        self._group: Sequence[Prepared] = ()
        self._done_bytes = 0
        """Of batches that are written, or never will be, and still count as held."""
        self.is_busy = False
        """Whether a job is under way, or wanted."""
        self.written_bytes = log.segments.active.size_bytes
        """How much of the active segment is part of the log."""

    # -- prepare ------------------------------------------------------------------------------

    def append(
        self, batch: ValidatedBatch, *, leader_epoch: int, now_ms: int, origin: AppendOrigin
    ) -> AppendInfo:
        """Give the batch its offsets and have it written; takes a copy of it.

        Raises what `ProducerStateManager.check` does.
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
        view = memoryview(bytearray(batch.view))
        set_base_offset_and_epoch(view, 0, self._end_offset, leader_epoch)
        prepared = Prepared(
            batch=batch._replace(view=view),
            first_offset=self._end_offset,
            leader_epoch=leader_epoch,
            now_ms=now_ms,
            writing=Writing(),
        )
        if batch.header.producer_id >= 0:
            self._producers.update(batch.header, first_offset=self._end_offset)
        self._end_offset = prepared.last_offset + 1
        self._waiting.append(prepared)
        self._rounds.hold(view.nbytes)
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
        """As `ProducerStateManager.check`, with all that is prepared."""
        producer_id = header.producer_id
        if producer_id not in self._producers.producers:
            known = self._log.producer_state.producers.get(producer_id)
            if known is None:
                return self._log.producer_state.check(header, origin)
            self._producers.producers[producer_id] = known.copy()
        return self._producers.check(header, origin)

    def _writing_of(self, last_offset: int) -> Writing | None:
        """Of the batch that ends there, if it is not in the log yet."""
        for prepared in (*self._group, *self._waiting):
            if prepared.last_offset == last_offset:
                return prepared.writing
        return None

    def roll(self) -> None:
        """Have a new segment begun, though no batch needs it; nothing else may be under way."""
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

        self._writes.submit(roll).then(self._ended, self._broken)

    # -- write: on the lane's thread ----------------------------------------------------------

    def _submit(self) -> None:
        group, nbytes = [self._waiting.popleft()], 0
        while self._waiting and nbytes < _GROUP_BYTES:
            nbytes += len(self._waiting[0].batch.view)
            group.append(self._waiting.popleft())
        self._group, self.is_busy = group, True
        active, config = self._log.segments.active, self._log.config
        self._writes.submit(lambda: self._write(group, active, config)).then(
            self._ended, self._broken
        )

    def _write(
        self, group: Sequence[Prepared], segment: LogSegment, config: TopicConfig
    ) -> _Outcome:
        """A job: write the batches in order, up to the first that cannot be written."""
        outcome = _Outcome()
        try:
            for number, prepared in enumerate(group):
                started_ms = self._writes.monotonic_ms()
                batch, now_ms = prepared.batch, prepared.now_ms
                if must_roll(segment, batch, prepared.last_offset, config, now_ms):
                    segment = make_successor(
                        self._files, self._log.directory, segment, prepared.first_offset, config
                    )
                    outcome.rolled[number] = segment
                write_batch(segment, batch, prepared.first_offset)
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
        if log.closed or log.offline:
            for segment in outcome.rolled.values():
                segment.close()
            outcome.written, outcome.rolled = 0, {}
        for number, prepared in enumerate(group[: outcome.written]):
            self._take_segment(outcome, number)
            header = prepared.batch.header
            try:
                log.appended(header, prepared.first_offset, prepared.leader_epoch)
            except Exception as error:
                log.on_bug("taking what a job has appended into the log", error)
                outcome.error = HalfWritten(f"a batch is in the file, not in the log: {error!r}")
                outcome.written = number
                break
            self._done_bytes += len(prepared.batch.view)
            prepared.writing.is_written = True
        else:
            self._take_segment(outcome, outcome.written)
        self.written_bytes = log.segments.active.size_bytes
        if outcome.error is not None or log.closed or log.offline:
            self._forget(group[outcome.written :], outcome.error)
        self._go_on()

    def _take_segment(self, outcome: _Outcome, number: int) -> None:
        segment = outcome.rolled.get(number)
        if segment is not None:
            self._log.rolled(segment)

    def _broken(self, error: Exception) -> None:
        """The job itself failed, and with it the count of what is in the file."""
        group, self._group, self.is_busy = self._group, (), False
        self._log.on_bug("a job that writes", error)
        self._forget(group, HalfWritten(f"a job that writes failed: {error!r}"))
        self._go_on()

    def _forget(self, unwritten: Sequence[Prepared], error: Exception | None) -> None:
        """These, and all that wait behind them, will not be in the log."""
        log = self._log
        reason: KafkaError
        if error is None:
            reason = KafkaStorageError(
                f"{log.topic_partition}: {log.log_dir} is offline, or the log is closed"
            )
        elif isinstance(error, OSError):
            reason = log.disk_failed("append", error)
        else:
            log.on_bug(f"append to {log.topic_partition} on a slow disk", error)
            reason = KafkaError("unexpected error, see the broker's log")
        for prepared in (*unwritten, *self._waiting):
            prepared.writing.error = reason
            log.producer_state.note_refused(prepared.batch.header)
            self._done_bytes += len(prepared.batch.view)
        self._waiting.clear()

    def _go_on(self) -> None:
        if self._waiting:
            self._submit()
        else:
            self._log.writes_ended()
        done_bytes, self._done_bytes = self._done_bytes, 0
        # Room at last, for it lets waiting requests append: perhaps to this very log.
        notify_all([self._log.on_durable, lambda: self._rounds.hold(-done_bytes)])
