"""A batch of records on its way, and the handles of its records.

All that is known of a record besides its bytes is known of its batch: a handle is the batch and an
index. A batch is filled by any thread, under the lock it shares with the accumulator; what becomes
of it afterwards is the engine's thread's business. Its outcome is set once, for all its records.
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
"""Is told where a record is, or why nobody may count on it."""

RECORD_OVERHEAD = 11
"""About how many bytes a record takes besides key, value and headers, if it has up to 8 kB and
comes within seconds of the first one of its batch: lengths, deltas, attributes."""
RECORD_OVERHEAD_MAX = 21
"""The same for any record. Source: Kafka 4.3 DefaultRecord."""
_HEADER_OVERHEAD = 3
_NULL = -1


def size_of_headers(headers: Sequence[Header]) -> int:
    """About how many bytes they take."""
    return sum(
        _HEADER_OVERHEAD + len(name.encode("utf-8", "surrogateescape")) + len(value or b"")
        for name, value in headers
    )


def size_of_record(record: RecordFields) -> int:
    """About how many bytes it takes in a batch, uncompressed."""
    _, _, key, value, headers = record
    return RECORD_OVERHEAD + len(key or b"") + len(value or b"") + size_of_headers(headers)


class ProducerBatch(SequencedBatch):
    """Records for one partition that travel together, uncompressed."""

    __slots__ = (
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
        """Which batch of its partition it is, and from which of that one's records on."""
        self.created_s = created_s
        self.records: list[RecordFields] = []
        self.size_bytes = HEADER_SIZE
        """An estimate of what it takes uncompressed."""
        self.limit_bytes = limit_bytes
        """The size at which it is full."""
        self.reserved_bytes = limit_bytes
        """What it holds of buffer.memory until it is done."""
        self.is_urgent = False
        """It does not linger any more."""
        self.encoded: bytes | None = None
        """As it was sent, while it has the same numbers."""
        self.attempts = 0
        """How often it was sent in vain."""
        self.trouble = ""
        """Why, the last time."""
        self.retry_at_s = 0.0
        self.leader_epoch = -1
        """The epoch of the leader it was sent to last."""
        self.is_done = False
        self.error: Exception | None = None
        self.errors_by_index: Mapping[int, Exception] = {}
        """Where single records were at fault; `error` is that of all the others."""
        self.base_offset = UNKNOWN_OFFSET
        self.append_time = NO_TIMESTAMP
        self._lock = lock
        self._watchers: list[tuple[int, OnDelivery]] = []
        self._parts: list[ProducerBatch] = []
        self._sizes: list[tuple[int, int, int]] = []

    @property
    def count(self) -> int:
        return len(self.records) or len(self._sizes)

    @property
    def is_finished(self) -> bool:
        """Whether each of its records has an outcome, also those that went on in other batches."""
        return self.is_done or (bool(self._parts) and all(x.is_finished for x in self._parts))

    @property
    def may_be_written(self) -> bool:
        """Whether it was sent, and is not known to have been refused."""
        return self.on_wire or self.in_doubt

    # -- its outcome, in the engine's thread ----------------------------------------------------

    def succeed(self, base_offset: int, append_time: int) -> None:
        """All records are in the log, from `base_offset` on, -1 where that is not known."""
        self.base_offset, self.append_time = base_offset, append_time
        self._finish()

    def fail(self, error: Exception, errors_by_index: Mapping[int, Exception] = {}) -> None:
        """No record may be counted on; they may be in the log all the same, as `error` says."""
        self.error, self.errors_by_index = error, errors_by_index
        self._finish()

    def _finish(self) -> None:
        assert not self.is_done
        # Whoever keeps handles is not to keep all that was sent.
        self._sizes = [
            (timestamp, _NULL if key is None else len(key), _NULL if value is None else len(value))
            for _, timestamp, key, value, _ in self.records
        ]
        self.records, self.encoded = [], None
        with self._lock:
            self.is_done = True
            watchers, self._watchers = self._watchers, []
        for index, on_delivery in watchers:
            self._tell(index, on_delivery)

    def abandon(self, error: Exception) -> None:
        """Nothing more will be known of it in this process, where nobody may hold its lock."""
        self.error, self.is_done = error, True

    def _tell(self, index: int, on_delivery: OnDelivery) -> None:
        error = self.error_at(index)
        try:
            on_delivery(None if error else self.metadata_at(index), error)
        except BaseException:  # Also asyncio's CancelledError: the other records are told, too.
            log.exception("a callback for a record of %s failed", self.topic_partition)

    # -- of one record --------------------------------------------------------------------------

    def error_at(self, index: int) -> Exception | None:
        """Why the record at `index` failed, once the batch is done."""
        return self.errors_by_index.get(index, self.error)

    def metadata_at(self, index: int) -> RecordMetadata:
        """Where the record at `index` is, once the batch is done."""
        timestamp, key_size, value_size = self._sizes[index]
        return RecordMetadata(
            self.topic_partition.topic,
            self.topic_partition.partition,
            self.base_offset if self.base_offset == UNKNOWN_OFFSET else self.base_offset + index,
            timestamp if self.append_time == NO_TIMESTAMP else self.append_time,
            key_size,
            value_size,
        )

    def watch(self, index: int, on_delivery: OnDelivery) -> None:
        """Have `on_delivery` called for the record at `index`: in the engine's thread, or at once
        and in this one where the outcome is known."""
        batch, place = self.locate(index)
        if not batch.is_done:
            with self._lock:
                batch, place = self.locate(index)
                if not batch.is_done:
                    batch._watchers.append((place, on_delivery))
                    return
        batch._tell(place, on_delivery)

    def watch_new(self, on_delivery: OnDelivery) -> None:
        """The same for the newest record, for who holds the lock."""
        self._watchers.append((len(self.records) - 1, on_delivery))

    # -- its parts ------------------------------------------------------------------------------

    def locate(self, index: int) -> tuple[ProducerBatch, int]:
        """The batch in which the record at `index` is now, and where in it."""
        batch = self
        while parts := batch._parts:
            starts = [part.order[1] - batch.order[1] for part in parts]
            found = bisect_right(starts, index) - 1
            batch, index = parts[found], index - starts[found]
        return batch, index

    def split(self, limit_bytes: int) -> list[ProducerBatch]:
        """Batches of at most `limit_bytes`, and half of this one, that take its place.

        Handles and callbacks follow their records, of which there have to be two.
        """
        sizes = [size_of_record(record) for record in self.records]
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
        part.is_urgent = True
        return part


class RecordHandle:
    """One record that was sent: a batch and an index. Any thread may ask it.

    The base of what the faces return. The functions below ask it what only clients need to know,
    so that completion in an editor shows users nothing of that.
    """

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: ProducerBatch, index: int) -> None:
        self._batch = batch
        self._index = index

    def __repr__(self) -> str:
        batch, index = self._batch.locate(self._index)
        outcome = "on its way"
        if batch.is_done:
            error = batch.error_at(index)
            outcome = repr(error) if error else f"offset {batch.metadata_at(index).offset}"
        return f"<{type(self).__name__} for {batch.topic_partition}: {outcome}>"

    def done(self) -> bool:
        """Return whether the record's outcome is known."""
        return self._batch.locate(self._index)[0].is_done


def error_of(handle: RecordHandle) -> Exception | None:
    """Return why the record failed, None if it did not; only when it is done."""
    batch, index = handle._batch.locate(handle._index)
    assert batch.is_done, "there is no outcome yet"
    return batch.error_at(index)


def metadata_of(handle: RecordHandle) -> RecordMetadata:
    """Return where the record is; only when it is done. Raises the error with which it failed."""
    batch, index = handle._batch.locate(handle._index)
    assert batch.is_done, "there is no outcome yet"
    error = batch.error_at(index)
    if error is not None:
        # Of all records of the batch, and so without what raising it for others has left.
        raise error.with_traceback(None)
    return batch.metadata_at(index)


def call_when_done(handle: R, function: Callable[[R], Any]) -> None:
    """Call `function` with `handle` when it is done: in the engine's thread, or now if it is."""
    handle._batch.watch(handle._index, lambda metadata, error: function(handle))


def share_batch(handle: RecordHandle, other: RecordHandle) -> bool:
    """Whether both records were put into the same batch, so that they are done together."""
    return handle._batch is other._batch


def handle_behind(handle: RecordHandle, places: int) -> RecordHandle:
    """The handle of the record that is so many places behind this one in the same batch."""
    return RecordHandle(handle._batch, handle._index + places)


def is_batch_written(handle: RecordHandle) -> bool:
    """Whether every record of the handle's batch is known to have been written."""
    batch = handle._batch
    return batch.is_done and batch.error is None and not batch.errors_by_index


class SendHandle(RecordHandle):
    """A record's handle for code of the engine, which may ask it everything."""

    __slots__ = ()

    def error(self) -> Exception | None:
        """See `error_of`."""
        return error_of(self)

    def metadata(self) -> RecordMetadata:
        """See `metadata_of`."""
        return metadata_of(self)

    def add_outcome(self, on_delivery: OnDelivery) -> None:
        """As `add_callback`, with metadata or an error."""
        self._batch.watch(self._index, on_delivery)

    def add_callback(self, function: Callable[[SendHandle], Any]) -> None:
        """See `call_when_done`."""
        call_when_done(self, function)
