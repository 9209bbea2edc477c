"""A batch of records to send, and the handles of its records.

All state except a record's bytes is kept per batch: a handle consists of a batch and an index. Any
thread may add records while it holds the accumulator's lock. Afterwards, only the engine's thread
changes the batch. The outcome is set once, for all records of the batch.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any, TypeAlias, TypeVar

from plog.client.producer.sequence_numbers import SequencedBatch
from plog.client.values import NO_TIMESTAMP, UNKNOWN_OFFSET, RecordMetadata
from plog.records.batch import HEADER_SIZE
from plog.records.codec import Header, RecordFields
from plog.types import TopicPartition

log = logging.getLogger("plog.client")

R = TypeVar("R", bound="RecordHandle")

OnDelivery: TypeAlias = Callable[[RecordMetadata | None, Exception | None], Any]
"""Called with a record's metadata and None or, if the record failed, with None and the error."""

OnFailure: TypeAlias = Callable[[Exception], object]
"""Called with an error for each batch in which records failed."""

# Sizes are estimates: exact sizes would require encoding each record when it is added.
RECORD_OVERHEAD = 11
"""The approximate size in bytes of a record's lengths, deltas and attributes.

The estimate is for a record of at most 8 kB that follows the first record of its batch within
seconds.
"""
RECORD_OVERHEAD_MAX = 21
"""The maximum overhead of any record. Source: Kafka 4.3 DefaultRecord."""
# One byte for the length of the name and two for the length of the value.
_HEADER_OVERHEAD = 3
_NULL = -1


def size_of_headers(headers: Sequence[Header]) -> int:
    """Return the approximate encoded size of headers, in bytes."""
    return sum(
        _HEADER_OVERHEAD + len(name.encode("utf-8", "surrogateescape")) + len(value or b"")
        for name, value in headers
    )


def size_of_record(record: RecordFields) -> int:
    """Return the approximate uncompressed size of a record in a batch, in bytes."""
    return sizes_of_records((record,))[0]


def sizes_of_records(records: Sequence[RecordFields]) -> list[int]:
    """Return the approximate uncompressed size of each record in a batch, in bytes."""
    # A single loop, because a call for each record takes twice as long.
    return [
        RECORD_OVERHEAD
        + (len(key) if key else 0)
        + (len(value) if value else 0)
        + (size_of_headers(headers) if headers else 0)
        for _, _, key, value, headers in records
    ]


class ProducerBatch(SequencedBatch):
    """A batch of uncompressed records for one partition and, once it is done, its outcome."""

    __slots__ = (
        "_failure_watchers",
        "_lock",
        "_parts",
        "_sizes",
        "_watchers",
        "append_time",
        "attempts",
        "base_offset",
        "created_s",
        "encoded",
        "error",
        "errors_by_index",
        "is_done",
        "is_urgent",
        "leader_epoch",
        "limit_bytes",
        "order",
        "records",
        "reserved_bytes",
        "retry_at_s",
        "size_bytes",
        "topic_partition",
        "trouble",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        lock: Lock,
        *,
        order: tuple[int, int],
        created_s: float,
        limit_bytes: int,
    ) -> None:
        super().__init__()
        self.topic_partition = topic_partition
        self.order = order
        """The batch's number in its partition and, for a part of a split batch, the index of its
        first record."""
        self.created_s = created_s
        self.records: list[RecordFields] = []
        self.size_bytes = HEADER_SIZE
        """Estimated uncompressed size."""
        self.limit_bytes = limit_bytes
        """The size at which the batch is full."""
        self.reserved_bytes = limit_bytes
        """The part of buffer.memory that the batch reserves until it is done."""
        self.is_urgent = False
        """The batch no longer lingers."""
        # Kept so that a retry with the same sequence numbers need not compress the records again.
        self.encoded: bytes | None = None
        """The encoded batch, valid while its sequence numbers stay the same."""
        self.attempts = 0
        """Number of failed attempts."""
        self.trouble = ""
        """Why the last attempt failed."""
        self.retry_at_s = 0.0
        self.leader_epoch = -1
        """The epoch of the leader to which the batch was last sent."""
        self.is_done = False
        self.error: Exception | None = None
        self.errors_by_index: Mapping[int, Exception] = {}
        """Errors for individual records, by index; `error` applies to all others."""
        self.base_offset = UNKNOWN_OFFSET
        self.append_time = NO_TIMESTAMP
        self._lock = lock
        self._watchers: list[tuple[int, OnDelivery]] = []
        self._failure_watchers: list[OnFailure] = []
        self._parts: list[ProducerBatch] = []
        self._sizes: list[tuple[int, int, int]] = []

    @property
    def count(self) -> int:
        return len(self.records) or len(self._sizes)

    @property
    def is_finished(self) -> bool:
        """Whether every record has an outcome, including records moved to parts of this batch."""
        return self.is_done or (bool(self._parts) and all(x.is_finished for x in self._parts))

    @property
    def may_be_written(self) -> bool:
        """Whether the batch was sent and is not known to have been rejected."""
        return self.on_wire or self.in_doubt

    # -- the outcome, in the engine's thread ----------------------------------------------------

    def succeed(self, base_offset: int, append_time: int) -> None:
        """Complete all records as written, starting at `base_offset` (-1: unknown)."""
        self.base_offset, self.append_time = base_offset, append_time
        self._finish()

    def fail(self, error: Exception, errors_by_index: Mapping[int, Exception] = {}) -> None:
        """Fail all records; `error` says whether they may have been written."""
        self.error, self.errors_by_index = error, errors_by_index
        self._finish()

    def _finish(self) -> None:
        assert not self.is_done
        # A handle refers to its batch. If an application keeps handles, the records must not stay
        # in memory with them.
        self._sizes = [
            (timestamp, _NULL if key is None else len(key), _NULL if value is None else len(value))
            for _, timestamp, key, value, _ in self.records
        ]
        self.records, self.encoded = [], None
        # The lock ensures that `watch` either adds its callback before this point or sees the
        # outcome.
        with self._lock:
            self.is_done = True
            watchers, self._watchers = self._watchers, []
        # A callback may send a record, which acquires the lock, so release it first.
        for index, on_delivery in watchers:
            self._notify(index, on_delivery)
        error = self.error or next(iter(self.errors_by_index.values()), None)
        if error is not None:
            for on_failure in self._failure_watchers:
                try:
                    on_failure(error)
                except Exception:
                    # The batch must still be removed from the accumulator.
                    log.exception("a callback for failed records failed")

    def abandon(self, error: Exception) -> None:
        """Fail the batch in a forked child."""
        # Do not acquire the lock: a thread in the parent may have held it during the fork.
        self.error, self.is_done = error, True

    def _notify(self, index: int, on_delivery: OnDelivery) -> None:
        error = self.error_at(index)
        try:
            on_delivery(None if error else self.metadata_at(index), error)
        except BaseException:
            # Catch even asyncio's CancelledError: the callbacks of other records must still run.
            log.exception("a callback for a record in %s failed", self.topic_partition)

    # -- single records -------------------------------------------------------------------------

    def error_at(self, index: int) -> Exception | None:
        """Return the error for the record at `index`, or None; valid once the batch is done."""
        return self.errors_by_index.get(index, self.error)

    def metadata_at(self, index: int) -> RecordMetadata:
        """Return the metadata of the record at `index`; valid once the batch is done."""
        timestamp, key_size, value_size = self._sizes[index]
        return RecordMetadata(
            self.topic_partition.topic,
            self.topic_partition.partition,
            # With acks=0 and for a duplicate batch, the offsets are unknown.
            self.base_offset if self.base_offset == UNKNOWN_OFFSET else self.base_offset + index,
            timestamp if self.append_time == NO_TIMESTAMP else self.append_time,
            key_size,
            value_size,
        )

    def watch(self, index: int, on_delivery: OnDelivery) -> None:
        """Call `on_delivery` with the outcome of the record at `index`.

        `on_delivery` runs in the engine's thread or, if the outcome is already known, immediately
        in this thread.
        """
        batch, place = self.locate(index)
        # A batch that is done stays done, so the lock is needed only for other batches.
        if not batch.is_done:
            with self._lock:
                batch, place = self.locate(index)
                if not batch.is_done:
                    batch._watchers.append((place, on_delivery))
                    return
        batch._notify(place, on_delivery)

    def watch_new(self, on_delivery: OnDelivery) -> None:
        """Call `on_delivery` with the newest record's outcome. The caller must hold the lock."""
        self._watchers.append((len(self.records) - 1, on_delivery))

    def watch_failure(self, on_failure: OnFailure) -> None:
        """Call `on_failure` once if any record of this batch fails, or once for each failed part.

        The caller must hold the lock, and the batch must be open.
        """
        if on_failure not in self._failure_watchers:
            self._failure_watchers.append(on_failure)

    # -- parts of a split batch -----------------------------------------------------------------

    def locate(self, index: int) -> tuple[ProducerBatch, int]:
        """Return the batch that now contains the record at `index`, and its index there."""
        batch = self
        while parts := batch._parts:
            starts = [part.order[1] - batch.order[1] for part in parts]
            found = bisect_right(starts, index) - 1
            batch, index = parts[found], index - starts[found]
        return batch, index

    def split(self, limit_bytes: int) -> list[ProducerBatch]:
        """Return parts that replace this batch, each at most `limit_bytes` and half the batch long.

        Only a part with a single record can be larger. Handles and callbacks follow their records.
        The batch must have at least two records.
        """
        sizes = sizes_of_records(self.records)
        # Sizes are estimates. Without the limit of half the size, a split might return the whole
        # batch again.
        limit_bytes = min(limit_bytes, HEADER_SIZE + (sum(sizes) + 1) // 2)
        starts = [0]
        room = limit_bytes - HEADER_SIZE
        for index, size in enumerate(sizes):
            if size > room and index > starts[-1]:
                starts.append(index)
                room = limit_bytes - HEADER_SIZE
            room -= size
        parts = [
            self._part(start, end, sum(sizes[start:end]))
            for start, end in zip(starts, [*starts[1:], len(sizes)], strict=True)
        ]
        with self._lock:
            watchers, self._watchers = self._watchers, []
            self._parts = parts
            # Handles still refer to this batch; `locate` finds their records in the parts.
            for index, on_delivery in watchers:
                part, place = self.locate(index)
                part._watchers.append((place, on_delivery))
        self.records, self.encoded = [], None
        return parts

    def _part(self, start: int, end: int, size_bytes: int) -> ProducerBatch:
        size_bytes += HEADER_SIZE
        part = ProducerBatch(
            self.topic_partition,
            self._lock,
            order=(self.order[0], self.order[1] + start),
            created_s=self.created_s,
            limit_bytes=size_bytes,
        )
        part.records = self.records[start:end]
        part.size_bytes = size_bytes
        part._failure_watchers = self._failure_watchers
        # The records have already lingered.
        part.is_urgent = True
        return part


class RecordHandle:
    """A handle of one sent record: a batch and an index. Any thread may use it.

    This is the base class of the futures that the faces return.
    """

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: ProducerBatch, index: int) -> None:
        self._batch = batch
        self._index = index

    def __repr__(self) -> str:
        batch, index = self._batch.locate(self._index)
        outcome = "pending"
        if batch.is_done:
            error = batch.error_at(index)
            outcome = repr(error) if error else f"offset {batch.metadata_at(index).offset}"
        return f"<{type(self).__name__} for {batch.topic_partition}: {outcome}>"

    def done(self) -> bool:
        """Return whether the record's outcome is known."""
        return self._batch.locate(self._index)[0].is_done


# These functions are not methods of RecordHandle, so that editors do not suggest them to users of
# the futures.
def error_of(handle: RecordHandle) -> Exception | None:
    """Return the record's error, or None; valid only once the record is done."""
    batch, index = handle._batch.locate(handle._index)
    assert batch.is_done, "the record has no outcome yet"
    return batch.error_at(index)


def metadata_of(handle: RecordHandle) -> RecordMetadata:
    """Return the record's metadata, or raise its error; valid only once the record is done."""
    batch, index = handle._batch.locate(handle._index)
    assert batch.is_done, "the record has no outcome yet"
    error = batch.error_at(index)
    if error is not None:
        # All records of the batch share one exception. Without this, each raise would lengthen its
        # traceback.
        raise error.with_traceback(None)
    return batch.metadata_at(index)


def call_when_done(handle: R, function: Callable[[R], Any]) -> None:
    """Call `function` with `handle` once the record is done, in the engine's thread.

    If the record is already done, call `function` now, in this thread.
    """
    handle._batch.watch(handle._index, lambda metadata, error: function(handle))


def share_batch(handle: RecordHandle, other: RecordHandle) -> bool:
    """Return whether both records were added to the same batch.

    If so, they are done at the same time, unless the batch is split.
    """
    return handle._batch is other._batch


def handle_behind(handle: RecordHandle, places: int) -> RecordHandle:
    """Return the handle of the record that is `places` records later in the same batch."""
    return RecordHandle(handle._batch, handle._index + places)


def is_batch_written(handle: RecordHandle) -> bool:
    """Return whether every record of the handle's batch is known to have been written."""
    batch = handle._batch
    return batch.is_done and batch.error is None and not batch.errors_by_index


class SendHandle(RecordHandle):
    """A record handle for use within the engine, with the functions above as methods."""

    __slots__ = ()

    def error(self) -> Exception | None:
        """Return the record's error, or None; see `error_of`."""
        return error_of(self)

    def metadata(self) -> RecordMetadata:
        """Return the record's metadata, or raise its error; see `metadata_of`."""
        return metadata_of(self)

    def add_outcome(self, on_delivery: OnDelivery) -> None:
        """Call `on_delivery` with the record's metadata or error once the record is done."""
        self._batch.watch(self._index, on_delivery)

    def add_callback(self, function: Callable[[SendHandle], Any]) -> None:
        """Call `function` with this handle once the record is done; see `call_when_done`."""
        call_when_done(self, function)
