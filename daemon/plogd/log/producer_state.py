"""The state of a partition's idempotent and transactional producers.

Each batch of these producers contains the producer's id, its epoch, and the sequence number of the
first record. `ProducerStateManager` detects duplicates (which get the original response), batches
that are out of order, and batches of fenced producers. `Log` calls `check` before an append and
`update` after it; recovery replays the log's batches through `update`. Snapshots allow recovery to
begin at a segment's base offset instead of the log start offset.

The state of a producer is kept when retention deletes its batches. It expires when the producer has
been inactive for ``producer.id.expiration.ms``.

Called on the reactor's thread; functions that access files run in jobs.

Source: Kafka 3.9 ProducerStateManager, ProducerAppendInfo, ProducerStateEntry; KIP-98, KIP-360.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from plog.errors import InvalidProducerEpoch, InvalidTxnState, OutOfOrderSequenceNumber
from plog.records.batch import BatchHeader
from plog.records.control import read_markers
from plogd.log.batch_validator import AppendOrigin
from plogd.log.producer_snapshot import CorruptSnapshot, ProducerSnapshots, SnapshotEntry
from plogd.log.segment.transaction_index import AbortedTransaction
from plogd.log.unstable_transactions import UnstableTransactions
from plogd.ports import Buffer

NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
REMEMBERED_BATCHES = 5
"""Number of newest batches in which duplicates are found: the largest number of requests that an
idempotent producer has in flight (Kafka's ProducerStateEntry.NUM_BATCHES_TO_RETAIN)."""

_EXPIRED_PER_STEP = 1000
"""Number of producers that one step of `expire` checks."""

MAX_REFUSED = 1_000
"""Maximum number of rejected first batches that a log remembers; the oldest is dropped first.

Any client can add them, for producer ids that it makes up, to each of a broker's thousands of logs.
"""

_SEQUENCE_MODULUS = 2**31  # Sequence numbers are Java ints; after the largest, 0 follows.


class BatchMetadata(NamedTuple):
    """A batch that a producer has appended."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        """The sequence number of the batch's first record.

        >>> BatchMetadata(1, last_offset=9, offset_delta=3, timestamp=0).first_sequence
        2147483646
        """
        return (self.last_sequence - self.offset_delta) % _SEQUENCE_MODULUS

    @property
    def first_offset(self) -> int:
        """The offset of the batch's first record."""
        return self.last_offset - self.offset_delta


class _Refused(NamedTuple):
    """A producer's first batch, which was rejected, and which its producer sends again."""

    producer_epoch: int
    base_sequence: int
    silent_since_ms: float | None = None
    """Monotonic time; None until the first expiration check after the rejection."""


class ProducerState:
    """One producer: its epoch, its newest batches, and the start of its open transaction."""

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
        """Number of snapshots begun before this object was created; see `_to_change`."""
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.coordinator_epoch = -1
        self.last_timestamp = -1
        """The largest timestamp in the newest batch, for DescribeProducers and snapshots."""
        # Unlike in Kafka, inactivity is not measured by record timestamps: a producer of backfilled
        # data would expire early, and a retried batch would be appended twice.
        self.silent_since_ms: float | None = None
        """A monotonic time at or after the producer's last append, from which its inactivity is
        measured; None until the next expiration check."""
        self.current_txn_first_offset: int | None = None
        self.batches: deque[BatchMetadata] = deque(maxlen=REMEMBERED_BATCHES)

    @classmethod
    def from_snapshot(cls, entry: SnapshotEntry) -> ProducerState:
        """Return the state that a snapshot entry describes."""
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
        """Return a copy that can be changed independently."""
        state = ProducerState(self.producer_id, generation)
        state.producer_epoch = self.producer_epoch
        state.coordinator_epoch = self.coordinator_epoch
        state.last_timestamp = self.last_timestamp
        state.current_txn_first_offset = self.current_txn_first_offset
        state.batches.extend(self.batches)
        return state

    def to_snapshot(self) -> SnapshotEntry:
        """Return the snapshot entry for this producer."""
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
        """The newest record's sequence number; -1 before the first record of this epoch."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def find_duplicate(self, header: BatchHeader) -> BatchMetadata | None:
        """Return the remembered batch that has the epoch and sequence numbers of `header`."""
        if header.producer_epoch != self.producer_epoch:
            return None
        base_sequence, delta = header.base_sequence, header.last_offset_delta
        for batch in self.batches:
            if batch.offset_delta == delta and batch.first_sequence == base_sequence:
                return batch
        return None

    def enter_epoch(self, producer_epoch: int) -> None:
        """Drop the batches of another epoch, because sequence numbers restart with each epoch."""
        if producer_epoch != self.producer_epoch:
            self.batches.clear()
            self.producer_epoch = producer_epoch


class ProducerStateManager:
    """All producers of a partition, and their snapshots in its directory."""

    __slots__ = (
        "_generation",
        "_refused",
        "expiration_ms",
        "producers",
        "snapshots",
        "transactions",
    )

    def __init__(self, snapshots: ProducerSnapshots, *, expiration_ms: int) -> None:
        self.snapshots = snapshots
        self.expiration_ms = expiration_ms
        self._generation = 0
        """Number of snapshots begun. They may still be using `ProducerState` objects of an older
        generation."""
        self.producers: dict[int, ProducerState] = {}
        self._refused: dict[int, _Refused] = {}
        """The rejected first batches of producers that have no state, by producer id."""
        self.transactions = UnstableTransactions()
        """The open transactions of `producers`, and those whose end is not committed yet."""

    def take_loaded(self, loaded: ProducerStateManager, end_offset: int) -> None:
        """Replace the state of producers with records at or above `end_offset`, which are removed.

        `loaded` contains the state below `end_offset` that could be read from the disk.
        """
        for producer_id, state in list(self.producers.items()):
            # The disk may no longer have the state of a producer whose segments were deleted.
            is_kept = bool(state.batches) and state.batches[-1].last_offset < end_offset
            # A removed marker leaves no trace, so the state of transactional producers is replaced.
            is_plain = state.coordinator_epoch < 0 and state.current_txn_first_offset is None
            if is_kept and (is_plain or producer_id not in loaded.producers):
                continue
            if producer_id in loaded.producers:
                self.producers[producer_id] = loaded.producers[producer_id].copy(self._generation)
            else:
                del self.producers[producer_id]
        for producer_id, state in loaded.producers.items():
            # The producer may have expired after a marker that is now removed.
            if state.current_txn_first_offset is not None and producer_id not in self.producers:
                self.producers[producer_id] = state.copy(self._generation)
        self._collect_transactions(end_offset)

    def _collect_transactions(self, end_offset: int = 0) -> None:
        ongoing = [
            state.current_txn_first_offset
            for state in self.producers.values()
            if state.current_txn_first_offset is not None
        ]
        self.transactions.replace(ongoing, end_offset)

    def successor(self) -> ProducerStateManager:
        """Return a manager for the same directory, without producers."""
        return ProducerStateManager(self.snapshots, expiration_ms=self.expiration_ms)

    # -- before and after an append -----------------------------------------------------------

    def check(self, header: BatchHeader, origin: AppendOrigin) -> BatchMetadata | None:
        """Return the batch that the batch with `header` duplicates, or None if it can be appended.

        Raises InvalidProducerEpoch, OutOfOrderSequenceNumber, InvalidTxnState.
        """
        # The leader has checked a replicated batch.
        if header.producer_id < 0 or origin is AppendOrigin.REPLICATION:
            return None
        state = self.producers.get(header.producer_id)
        if state is None:
            if origin is AppendOrigin.CLIENT:  # Coordinators do not use sequence numbers.
                self._check_first(header)
            return None
        # Before the sequence check, which would reject a duplicate as out of order.
        if origin is AppendOrigin.CLIENT:
            duplicate = state.find_duplicate(header)
            if duplicate is not None:
                return duplicate
        if header.producer_epoch < state.producer_epoch:
            raise InvalidProducerEpoch(
                f"producer {header.producer_id} is now at epoch {state.producer_epoch}; "
                f"this batch has epoch {header.producer_epoch}"
            )
        if origin is AppendOrigin.CLIENT:
            self._check_sequence(state, header)
        if state.current_txn_first_offset is not None and not (
            header.is_transactional or header.is_control
        ):
            raise InvalidTxnState(
                f"producer {header.producer_id} has an open transaction; "
                "this batch is not part of it"
            )
        return None

    def _check_first(self, header: BatchHeader) -> None:
        """Reject a batch of an unknown producer if a batch rejected earlier must be sent first."""
        # An unknown producer can begin with any sequence number. If its first batch was rejected,
        # for example because the disk was full, a later one may be accepted, and would be appended
        # out of order.
        refused = self._refused.get(header.producer_id)
        if (
            refused is not None
            and refused.producer_epoch == header.producer_epoch
            and refused.base_sequence != header.base_sequence
        ):
            raise OutOfOrderSequenceNumber(
                f"producer {header.producer_id} with epoch {header.producer_epoch} sent sequence"
                f" number {header.base_sequence}; {refused.base_sequence} was rejected, and must be"
                " sent first"
            )

    def note_refused(self, header: BatchHeader) -> None:
        """Record a rejected batch, which its producer must send first."""
        # For a known producer, the next sequence number is always checked. A marker has none.
        if header.producer_id < 0 or header.is_control or header.producer_id in self.producers:
            return
        # Of the rejected batches in an epoch, only the first can begin the sequence.
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
            # Each epoch begins with sequence number 0. As in Kafka, a producer whose epoch is
            # unknown can continue with any number (KIP-360).
            in_order = header.base_sequence == 0 or state.producer_epoch == NO_PRODUCER_EPOCH
        else:
            last_sequence = state.last_sequence
            in_order = header.base_sequence == (last_sequence + 1) % _SEQUENCE_MODULUS
        if not in_order:
            raise OutOfOrderSequenceNumber(
                f"producer {header.producer_id} with epoch {header.producer_epoch} sent sequence"
                f" number {header.base_sequence} after {last_sequence} in epoch"
                f" {state.producer_epoch}"
            )

    def update(
        self, header: BatchHeader, *, first_offset: int, max_timestamp: int | None = None
    ) -> None:
        """Record a batch appended at `first_offset`; `header` may not contain this offset yet.

        `max_timestamp` replaces the timestamp in `header` if the broker set the timestamps. If this
        raises, nothing has changed.
        """
        # All operations that can fail come before the first change to the state.
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
            self.transactions.begin(first_offset)

    def complete_transaction(
        self,
        header: BatchHeader,
        batch: Buffer,
        offset: int,
        add_aborted: Callable[[AbortedTransaction], object],
    ) -> None:
        """Record the commit or abort marker in a control batch at `offset`.

        First passes the transaction to `add_aborted` if the marker aborts it; if that raises,
        nothing has changed. Raises CorruptRecords.
        """
        for marker in read_markers(batch, header):
            state = self.producers.get(header.producer_id)
            first_offset = None if state is None else state.current_txn_first_offset
            # Without records in this partition, a transaction needs no entry.
            if first_offset is not None and not marker.is_commit:
                stable_offset = self.transactions.stable_offset_after(first_offset, offset)
                producer_id = header.producer_id
                add_aborted(AbortedTransaction(producer_id, first_offset, offset, stable_offset))
            state = self._to_change(header.producer_id)
            state.enter_epoch(header.producer_epoch)
            state.coordinator_epoch = marker.coordinator_epoch
            state.last_timestamp = marker.timestamp
            state.current_txn_first_offset = None
            if first_offset is not None:
                self.transactions.complete(first_offset, offset)

    def _to_change(self, producer_id: int) -> ProducerState:
        """Return a producer's state that may be changed; create or copy it if necessary."""
        state = self.producers.get(producer_id)
        if state is not None and state.generation == self._generation:
            state.silent_since_ms = None
            return state
        assert producer_id >= 0
        if state is None:
            # The producer's first batch is now in the log, so its sequence numbers are checked.
            self._refused.pop(producer_id, None)
            state = ProducerState(producer_id, self._generation)
        else:
            state = state.copy(self._generation)
        self.producers[producer_id] = state
        return state

    def remove_expired(self, now_ms: float) -> None:
        """Remove producers that have been inactive for too long; `now_ms` is monotonic."""
        for _ in self.expire(now_ms):
            pass

    def expire(self, now_ms: float) -> Iterator[None]:
        """Remove producers as `remove_expired` does, a limited number per step."""
        # All in one step, because there are at most MAX_REFUSED.
        for producer_id, refused in list(self._refused.items()):
            if refused.silent_since_ms is None:
                self._refused[producer_id] = refused._replace(silent_since_ms=now_ms)
            elif now_ms - refused.silent_since_ms >= self.expiration_ms:
                del self._refused[producer_id]
        for number, producer_id in enumerate(list(self.producers), 1):
            state = self.producers.get(producer_id)  # It may have been removed since the last step.
            if state is not None:
                if state.silent_since_ms is None:
                    state.silent_since_ms = now_ms
                if self._expired(state, now_ms):
                    del self.producers[producer_id]
            if not number % _EXPIRED_PER_STEP:
                yield

    def _expired(self, state: ProducerState, now_ms: float) -> bool:
        # As in Kafka, a producer with an open transaction never expires: its commit or abort marker
        # has yet to arrive.
        if state.silent_since_ms is None or state.current_txn_first_offset is not None:
            return False
        return now_ms - state.silent_since_ms >= self.expiration_ms

    def date_silence(self, appended_ms: Callable[[BatchMetadata], float]) -> None:
        """Set the times from which inactivity is measured; called after the state has been loaded.

        `appended_ms` returns a monotonic time at or after the append of a batch.
        """
        # Snapshots do not contain the times of appends.
        for state in self.producers.values():
            if state.batches:
                state.silent_since_ms = appended_ms(state.batches[-1])

    # -- snapshots ----------------------------------------------------------------------------

    def write_snapshot(self, end_offset: int) -> None:
        """Durably write a snapshot of the producer state up to `end_offset`. Raises OSError."""
        self.prepare_snapshot(end_offset)()

    def prepare_snapshot(self, end_offset: int) -> Callable[[], None]:
        """Return a job that writes the current state; see `write_snapshot`."""
        # Copying the state of every producer would block the reactor. Instead, `_to_change` copies
        # a state from an older generation before the state is changed.
        self._generation += 1
        states = list(self.producers.values())
        snapshots = self.snapshots
        return lambda: snapshots.write(end_offset, (state.to_snapshot() for state in states))

    def load_newest(self, end_offset: int) -> int | None:
        """Load the newest snapshot at or below `end_offset`; return its offset, None without one.

        Raises OSError.
        """
        for offset in reversed(self.snapshots.offsets()):
            if offset <= end_offset:
                with contextlib.suppress(CorruptSnapshot):
                    self._load(offset)
                    return offset
        return None

    def load(self, log_start_offset: int, log_end_offset: int) -> int | None:
        """Load the newest usable snapshot; return the offset from which to replay batches.

        Deletes snapshots that are damaged or outside the log. Returns None if no snapshot is
        usable.
        """
        self.producers = {}
        for offset in reversed(self.snapshots.offsets()):
            if log_start_offset <= offset <= log_end_offset:
                with contextlib.suppress(CorruptSnapshot):
                    self._load(offset)
                    return offset
            # A snapshot beyond the log end includes sequence numbers of records that were lost.
            self.snapshots.delete(offset)
        return None

    def _load(self, offset: int) -> None:
        """Replace the state with a snapshot. Raises OSError or CorruptSnapshot."""
        entries = self.snapshots.read(offset)
        self.producers = {
            entry.producer_id: ProducerState.from_snapshot(entry) for entry in entries
        }
        self._collect_transactions()
