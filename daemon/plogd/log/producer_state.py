"""What a partition knows of its idempotent and transactional producers.

Each batch of such a producer carries its id, epoch and the sequence number of its first record.
This is where a batch is recognized as one that came before (it gets the answer it got then), as
one out of order, or as sent by a producer that another has replaced. `Log` asks `check` before an
append and tells `update` after it; recovery replays the log's batches through `update`. Snapshots
let recovery begin at a segment's base instead of at the log's start.

State outlives its batches, which retention may delete, and expires when a producer has been
silent for ``producer.id.expiration.ms``. Silence is measured by the broker's clock and not, as in
Kafka, by the timestamps of records: a producer that backfills old data must stay known as well. It
counts from the first check after the last append, or, after a start, from when the segment of the
newest batch was last written. Either is no earlier than the last append.

An unknown producer may begin at any
sequence number; but where a full disk has refused its first batch, that one has to come first.
Otherwise the next batch, which may be smaller, would be accepted and the order would be wrong.
Kafka has no such rule: it takes a full disk offline.

Called on the reactor's thread, but for the functions that touch files, which are jobs' work.

Source: Kafka 3.9 ProducerStateManager, ProducerAppendInfo, ProducerStateEntry; KIP-98, KIP-360.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from plog.errors import InvalidProducerEpoch, InvalidTxnState, OutOfOrderSequenceNumber
from plog.records.batch import BatchHeader
from plogd.log.batch_validator import AppendOrigin
from plogd.log.disk.checkpoint_files import write_atomic
from plogd.log.file_names import (
    SNAPSHOT_SUFFIX,
    parse_segment_file_name,
    segment_path,
)
from plogd.log.producer_snapshot import (
    CorruptSnapshot,
    SnapshotEntry,
    decode_snapshot,
    encode_snapshot,
)
from plogd.ports import Files

NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
REMEMBERED_BATCHES = 5
"""A producer may have this many requests in flight, so this many may come again."""

_EXPIRED_AT_ONCE = 1000
"""Producers that one step of `expire` looks at."""

MAX_REFUSED = 10_000
"""So many producers may wait for room at once; beyond it the oldest is forgotten."""

_SEQUENCE_MODULUS = 2**31


class BatchMetadata(NamedTuple):
    """A batch a producer has appended."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        """The sequence number of its first record.

        >>> BatchMetadata(1, last_offset=9, offset_delta=3, timestamp=0).first_sequence
        2147483646
        """
        return (self.last_sequence - self.offset_delta) % _SEQUENCE_MODULUS

    @property
    def first_offset(self) -> int:
        """The offset of its first record."""
        return self.last_offset - self.offset_delta


class _Refused(NamedTuple):
    """A producer's first batch, for which there was no room."""

    producer_epoch: int
    base_sequence: int
    silent_since_ms: float | None = None
    """Monotonic; None until the first check after it was noted."""


class ProducerState:
    """One producer: its epoch, its newest batches, and where its open transaction began."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_txn_first_offset",
        "generation",
        "last_timestamp",
        "producer_epoch",
        "producer_id",
        "silent_since_ms",
    )

    def __init__(self, producer_id: int, generation: int = 0) -> None:
        self.producer_id = producer_id
        self.generation = generation
        """How many snapshots had been begun when it was made: see `prepare_snapshot`."""
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.coordinator_epoch = -1
        self.last_timestamp = -1
        """Of its newest record, for DescribeProducers and snapshots."""
        self.silent_since_ms: float | None = None
        """Monotonic, no earlier than its last append; None until the first check after that."""
        self.current_txn_first_offset: int | None = None
        self.batches: deque[BatchMetadata] = deque(maxlen=REMEMBERED_BATCHES)

    @classmethod
    def from_snapshot(cls, entry: SnapshotEntry) -> ProducerState:
        """The producer a snapshot tells of."""
        state = cls(entry.producer_id)
        state.producer_epoch = entry.producer_epoch
        state.coordinator_epoch = entry.coordinator_epoch
        state.last_timestamp = entry.timestamp
        if entry.current_txn_first_offset >= 0:
            state.current_txn_first_offset = entry.current_txn_first_offset
        if entry.last_offset >= 0:
            state.batches.append(
                BatchMetadata(
                    entry.last_sequence, entry.last_offset, entry.offset_delta, entry.timestamp
                )
            )
        return state

    def copy(self, generation: int = 0) -> ProducerState:
        """The same once more, to be changed apart."""
        state = ProducerState(self.producer_id, generation)
        state.producer_epoch = self.producer_epoch
        state.coordinator_epoch = self.coordinator_epoch
        state.last_timestamp = self.last_timestamp
        state.current_txn_first_offset = self.current_txn_first_offset
        state.batches.extend(self.batches)
        return state

    def to_snapshot(self) -> SnapshotEntry:
        """What a snapshot keeps of this producer."""
        last = self.batches[-1] if self.batches else BatchMetadata(NO_SEQUENCE, -1, 0, -1)
        first_offset = self.current_txn_first_offset
        return SnapshotEntry(
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            last_sequence=last.last_sequence,
            last_offset=last.last_offset,
            offset_delta=last.offset_delta,
            timestamp=self.last_timestamp,
            coordinator_epoch=self.coordinator_epoch,
            current_txn_first_offset=-1 if first_offset is None else first_offset,
        )

    @property
    def last_sequence(self) -> int:
        """The newest record's sequence number; -1 if none is remembered in this epoch."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def find_duplicate(self, header: BatchHeader) -> BatchMetadata | None:
        """The remembered batch with exactly these sequence numbers and this epoch."""
        if header.producer_epoch != self.producer_epoch:
            return None
        base_sequence, delta = header.base_sequence, header.last_offset_delta
        for batch in self.batches:
            if batch.offset_delta == delta and batch.first_sequence == base_sequence:
                return batch
        return None

    def enter_epoch(self, producer_epoch: int) -> None:
        """Forget the batches of another epoch: sequence numbers begin anew with each."""
        if producer_epoch != self.producer_epoch:
            self.batches.clear()
            self.producer_epoch = producer_epoch


class ProducerStateManager:
    """All producers of one partition, and their snapshots in its directory."""

    __slots__ = (
        "_files",
        "_generation",
        "_refused",
        "directory",
        "expiration_ms",
        "producers",
    )

    def __init__(self, files: Files, directory: str, *, expiration_ms: int) -> None:
        self._files = files
        self.directory = directory
        """Where snapshots are; set anew when the directory is renamed."""
        self.expiration_ms = expiration_ms
        self._generation = 0
        """How many snapshots were begun; what is older in `producers` may be in one of them."""
        self.producers: dict[int, ProducerState] = {}
        self._refused: dict[int, _Refused] = {}
        """The first batch of each producer we know nothing else of, if there was no room for it."""

    # -- before and after an append -----------------------------------------------------------

    def check(self, header: BatchHeader, origin: AppendOrigin) -> BatchMetadata | None:
        """May this batch be appended? The one it repeats, if it came before; None if it is new.

        Raises InvalidProducerEpoch, OutOfOrderSequenceNumber, InvalidTxnState. Batches that come by
        replication are not checked: their leader did.
        """
        if header.producer_id < 0 or origin is AppendOrigin.REPLICATION:
            return None
        state = self.producers.get(header.producer_id)
        if state is None:
            self._check_first(header)
            return None
        if origin is AppendOrigin.CLIENT:
            duplicate = state.find_duplicate(header)
            if duplicate is not None:
                return duplicate
        if header.producer_epoch < state.producer_epoch:
            raise InvalidProducerEpoch(
                f"producer {header.producer_id} is now at epoch {state.producer_epoch}, "
                f"this batch comes from epoch {header.producer_epoch}"
            )
        if origin is AppendOrigin.CLIENT:
            self._check_sequence(state, header)
        if state.current_txn_first_offset is not None and not (
            header.is_transactional or header.is_control
        ):
            raise InvalidTxnState(
                f"producer {header.producer_id} has an open transaction, "
                "this batch is not part of one"
            )
        return None

    def _check_first(self, header: BatchHeader) -> None:
        """A batch of a producer we know nothing of: not before the one that was refused."""
        refused = self._refused.get(header.producer_id)
        if (
            refused is not None
            and refused.producer_epoch == header.producer_epoch
            and refused.base_sequence != header.base_sequence
        ):
            raise OutOfOrderSequenceNumber(
                f"producer {header.producer_id} epoch {header.producer_epoch} sends sequence "
                f"number {header.base_sequence}; {refused.base_sequence}, for which there was no "
                "room, has to come again first"
            )

    def note_refused(self, header: BatchHeader) -> None:
        """There was no room for a batch that `check` had let pass; its producer will send it again.

        Does nothing for a producer that is known: its next sequence number is.
        """
        if header.producer_id < 0 or header.producer_id in self.producers:
            return
        noted = self._refused.get(header.producer_id)
        if noted is None or noted.producer_epoch < header.producer_epoch:
            self._refused[header.producer_id] = _Refused(
                header.producer_epoch, header.base_sequence
            )
        if len(self._refused) > MAX_REFUSED:
            del self._refused[next(iter(self._refused))]

    def _check_sequence(self, state: ProducerState, header: BatchHeader) -> None:
        if header.producer_epoch != state.producer_epoch:
            last_sequence = NO_SEQUENCE
            # Nothing is known of its epoch: all its batches have expired (KIP-360).
            in_order = header.base_sequence == 0 or state.producer_epoch == NO_PRODUCER_EPOCH
        else:
            last_sequence = state.last_sequence
            in_order = header.base_sequence == (last_sequence + 1) % _SEQUENCE_MODULUS
        if not in_order:
            raise OutOfOrderSequenceNumber(
                f"producer {header.producer_id} epoch {header.producer_epoch} sends sequence "
                f"number {header.base_sequence} after {last_sequence} of epoch "
                f"{state.producer_epoch}"
            )

    def update(
        self, header: BatchHeader, *, first_offset: int, max_timestamp: int | None = None
    ) -> None:
        """A batch was appended at `first_offset`; `header` may still say another one.

        `max_timestamp` is for a batch that got the broker's time after `header` was read. All or
        nothing: what may fail comes before the first change.
        """
        timestamp = header.max_timestamp if max_timestamp is None else max_timestamp
        delta = header.last_offset_delta
        batch = BatchMetadata(
            (header.base_sequence + delta) % _SEQUENCE_MODULUS,
            first_offset + delta,
            delta,
            timestamp,
        )
        state = self._to_change(header.producer_id)
        state.enter_epoch(header.producer_epoch)
        state.batches.append(batch)
        state.last_timestamp = timestamp
        if header.is_transactional and state.current_txn_first_offset is None:
            state.current_txn_first_offset = first_offset

    def complete_transaction(
        self, header: BatchHeader, *, coordinator_epoch: int, timestamp: int
    ) -> None:
        """A commit or abort marker of this producer was appended."""
        state = self._to_change(header.producer_id)
        state.enter_epoch(header.producer_epoch)
        state.coordinator_epoch = coordinator_epoch
        state.last_timestamp = timestamp
        state.current_txn_first_offset = None

    def _to_change(self, producer_id: int) -> ProducerState:
        """The producer's state, perhaps a new one, that no snapshot holds."""
        state = self.producers.get(producer_id)
        if state is not None and state.generation == self._generation:
            state.silent_since_ms = None
            return state
        assert producer_id >= 0
        if state is None:
            self._refused.pop(producer_id, None)
            state = ProducerState(producer_id, self._generation)
        else:
            state = state.copy(self._generation)
        self.producers[producer_id] = state
        return state

    def remove_expired(self, now_ms: float) -> None:
        """Forget the producers that have been silent too long; `now_ms` is monotonic."""
        for _ in self.expire(now_ms):
            pass

    def expire(self, now_ms: float) -> Iterator[None]:
        """As `remove_expired`, in steps of a bounded number of producers."""
        for producer_id, refused in list(self._refused.items()):
            if refused.silent_since_ms is None:
                self._refused[producer_id] = refused._replace(silent_since_ms=now_ms)
            elif now_ms - refused.silent_since_ms >= self.expiration_ms:
                del self._refused[producer_id]
        for number, producer_id in enumerate(list(self.producers), 1):
            state = self.producers.get(producer_id)  # It may have gone since the last step.
            if state is not None:
                if state.silent_since_ms is None:
                    state.silent_since_ms = now_ms
                if self._expired(state, now_ms):
                    del self.producers[producer_id]
            if not number % _EXPIRED_AT_ONCE:
                yield

    def _expired(self, state: ProducerState, now_ms: float) -> bool:
        if state.silent_since_ms is None or state.current_txn_first_offset is not None:
            return False
        return now_ms - state.silent_since_ms >= self.expiration_ms

    def date_silence(self, appended_ms: Callable[[BatchMetadata], float]) -> None:
        """Note since when each producer has been silent, after the state was loaded.

        `appended_ms` returns a monotonic time no earlier than the append of a batch.
        """
        for state in self.producers.values():
            if state.batches:
                state.silent_since_ms = appended_ms(state.batches[-1])

    # -- snapshots ----------------------------------------------------------------------------

    def write_snapshot(self, end_offset: int) -> None:
        """Durably write the state now as the snapshot of all below `end_offset`. Raises OSError."""
        self.prepare_snapshot(end_offset)()

    def prepare_snapshot(self, end_offset: int) -> Callable[[], None]:
        """What a job has to do to write the state of this moment; see `write_snapshot`.

        Costs next to nothing here: of a producer that changes before the job is done, or after,
        the next change makes a copy.
        """
        self._generation += 1
        states = list(self.producers.values())
        files, path = self._files, self.snapshot_path(end_offset)

        def write() -> None:
            write_atomic(files, path, encode_snapshot(state.to_snapshot() for state in states))

        return write

    def snapshot_path(self, end_offset: int) -> str:
        """Where the snapshot of all below `end_offset` is, or would be."""
        return segment_path(self.directory, end_offset, SNAPSHOT_SUFFIX)

    def snapshot_offsets(self) -> list[int]:
        """The end offsets of all snapshots on disk, rising."""
        names = map(parse_segment_file_name, self._files.listdir(self.directory))
        return sorted(
            name.base_offset
            for name in names
            if name is not None and name.suffix == SNAPSHOT_SUFFIX and not name.state
        )

    def load(self, log_start_offset: int, log_end_offset: int) -> int | None:
        """Load the newest usable snapshot; returns the offset from which to replay batches.

        Snapshots beyond `log_end_offset`, before `log_start_offset`, or damaged are deleted. None
        if none is left.
        """
        self.producers.clear()
        for offset in reversed(self.snapshot_offsets()):
            if log_start_offset <= offset <= log_end_offset:
                try:
                    entries = decode_snapshot(self._files.read_file(self.snapshot_path(offset)))
                except CorruptSnapshot:
                    self.delete_snapshot(offset)
                    continue
                for entry in entries:
                    self.producers[entry.producer_id] = ProducerState.from_snapshot(entry)
                return offset
            self.delete_snapshot(offset)
        return None

    def remove_stray_snapshots(self, segment_base_offsets: Collection[int]) -> None:
        """Delete snapshots that belong to no segment, but for one beyond them all.

        That one was written at a clean stop.
        """
        offsets = self.snapshot_offsets()
        latest = offsets[-1:] if offsets[-1:] > [max(segment_base_offsets, default=-1)] else []
        for offset in offsets:
            if offset not in segment_base_offsets and offset not in latest:
                self.delete_snapshot(offset)

    def delete_snapshots_before(self, offset: int) -> None:
        """Delete the snapshots of offsets below `offset`."""
        for snapshot_offset in self.snapshot_offsets():
            if snapshot_offset < offset:
                self.delete_snapshot(snapshot_offset)

    def delete_snapshot(self, end_offset: int) -> None:
        """Delete one snapshot; harmless if it is gone."""
        path = self.snapshot_path(end_offset)
        if self._files.exists(path):
            self._files.unlink(path)
