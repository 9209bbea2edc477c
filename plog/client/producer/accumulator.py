"""The accumulator: it collects records in batches, one queue of batches per partition.

`append` is the producer's hot path. Any thread may call it; it never waits, and it costs only a
lock, a tuple and a handle. `append_all` adds a list of records without handles. Nothing is encoded
here: the engine's thread takes whole batches, oldest first, and encodes them. From its first record
until its outcome is known, a batch reserves a share of buffer.memory. The share doubles whenever
the batch outgrows it.

Source: KIP-480, KIP-794; Kafka 4.3 RecordAccumulator, BuiltInPartitioner, BufferPool.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from threading import Lock
from typing import Generic, TypeVar

from plog.client.network.ports import Network
from plog.client.producer.memory_claim import Claim
from plog.client.producer.partition_queue import PartitionQueue, TopicQueues
from plog.client.producer.producer_batch import (
    OnDelivery,
    OnFailure,
    ProducerBatch,
    RecordHandle,
    sizes_of_records,
)
from plog.client.producer.record_checks import largest_record_bytes
from plog.client.producer.sequence_numbers import REMEMBERED_BATCHES, PartitionSequences
from plog.client.settings import ProducerSettings
from plog.client.transactions.transaction_sequences import sequences_factory
from plog.client.transactions.transaction_state import TransactionState
from plog.records.batch import HEADER_SIZE
from plog.records.codec import NO_OFFSET, Header, RecordFields
from plog.types import ZERO_UUID, TopicPartition, Uuid

H = TypeVar("H", bound=RecordHandle)

# The initial share is small: a producer that sends only a few records to each of a thousand
# partitions must not exhaust the memory, whatever batch.size is.
_FIRST_BYTES = 16 * 1024
"""The share of buffer.memory that a new batch reserves."""


class Accumulator(Generic[H]):
    """A producer's open and full batches, and the buffer memory that they reserve.

    Use only in the engine's thread, except for methods marked "any thread" or "thread-safe".
    """

    def __init__(
        self,
        make_handle: Callable[[ProducerBatch, int], H],
        *,
        batch_size: int,
        buffer_memory: int,
        largest_bytes: float = math.inf,
        linger_s: float,
        is_idempotent: bool = True,
        window: int = REMEMBERED_BATCHES,
        make_sequences: Callable[[TopicPartition], PartitionSequences[ProducerBatch]] | None = None,
        ignore_keys: bool = False,
        is_adaptive: bool = True,
        now_s: Callable[[], float],
        random: Callable[[], float],
        wake: Callable[[], None],
    ) -> None:
        self._make_handle = make_handle
        # As in Kafka, batch.size=0 disables batching: with a limit of 1 byte, every batch is full
        # after one record.
        self._batch_size = max(batch_size, 1)
        self._buffer_memory = buffer_memory
        self._largest_bytes = largest_bytes
        self._linger_s = linger_s
        self._make_sequences = make_sequences
        if make_sequences is None and is_idempotent:
            self._make_sequences = lambda _: PartitionSequences(window_max=window)
        self._ignore_keys = ignore_keys
        self._is_adaptive = is_adaptive
        self._now_s = now_s
        self._random = random
        self._wake = wake
        self._lock = Lock()
        self._topics: dict[str, TopicQueues] = {}
        self._forgotten: dict[str, TopicQueues] = {}
        self._queue_by_partition: dict[TopicPartition, PartitionQueue] = {}
        self._must_wake = False
        self._next_check_s = math.inf
        """When the engine will next check the queues; 0 if it has been woken to check them now."""
        self.waiting: dict[PartitionQueue, None] = {}
        """Queues with batches; the most recently served queue is last."""
        self.incomplete: dict[ProducerBatch, None] = {}
        """Batches without an outcome, or whose outcome is being reported, oldest first."""
        self.used_bytes = 0
        """The part of buffer.memory that is reserved."""
        self.refused_bytes = 0
        """The size of the last reservation that failed."""
        self.line_length = 0
        """Number of records that wait for memory. While it is above 0, no batch lingers."""

    # -- any thread -----------------------------------------------------------------------------

    def append(
        self,
        topic_name: str,
        partition: int | None,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
        size_bytes: int,
        on_delivery: OnDelivery | None = None,
        claim: Claim = Claim.NEW,
    ) -> H | None:
        """Add a record; return its handle, or None if it needs memory or its partition is unknown.

        `size_bytes` estimates the record's size. A record that fits into the memory that its batch
        has already reserved is added regardless of `claim`.
        """
        # No lock is needed: the lookup is atomic, and `close` also empties a topic that was looked
        # up before it.
        topic = self._topics.get(topic_name)
        if topic is None:
            return None
        # All sending threads share the lock, so hash the key before acquiring it.
        if partition is None and key is not None and not self._ignore_keys:
            partition = topic.partition_of(key)
        with self._lock:
            try:
                queue = topic.sticky if partition is None else topic.queues[partition]
            except IndexError:
                # A recreated topic may have fewer partitions. In a closed producer, a topic has
                # none.
                return None
            batch = queue.open if queue is not None else None
            if batch is None or batch.size_bytes + size_bytes > batch.reserved_bytes:
                batch = self._make_room(topic, partition, batch, size_bytes, claim)
            if batch is not None:
                index = len(batch.records)
                batch.records.append((NO_OFFSET, timestamp, key, value, headers))
                batch.size_bytes += size_bytes
                if on_delivery is not None:
                    # Without the lock, the batch could be sent and completed before the callback is
                    # added.
                    batch.watch_new(on_delivery)
        # `_wake` may run the engine in this thread, so the lock must be free.
        if self._must_wake:
            self._must_wake = False
            self._wake()
        return None if batch is None else self._make_handle(batch, index)

    def append_all(
        self,
        topic_name: str,
        partition: int | None,
        records: Sequence[RecordFields],
        on_failure: OnFailure,
    ) -> Sequence[RecordFields]:
        """Add records without handles, and return the rest, for `append`.

        The rest needs memory, is too large, or belongs to an unknown topic or partition. The order
        of the records of a partition stays the same. `on_failure` is called for each batch in which
        a record failed.
        """
        topic = self._topics.get(topic_name)
        if topic is None:
            return records
        runs: Mapping[int | None, Sequence[RecordFields]] = {partition: records}
        if partition is None and not self._ignore_keys:
            runs = topic.by_partition(records)
        rest: list[RecordFields] = []
        for number, run in runs.items():
            sizes = sizes_of_records(run)
            count = 0
            if max(sizes, default=0) <= self._largest_bytes:
                with self._lock:
                    count = self._append_run(topic, number, run, sizes, on_failure)
            rest += run[count:]
        if self._must_wake:
            self._must_wake = False
            self._wake()
        return rest

    def _append_run(
        self,
        topic: TopicQueues,
        partition: int | None,
        records: Sequence[RecordFields],
        sizes: Sequence[int],
        on_failure: OnFailure,
    ) -> int:
        """Add records for one partition, and return the number of records that were added."""
        ends = list(accumulate(sizes, initial=0))
        start = 0
        while start < len(records):
            try:
                queue = topic.sticky if partition is None else topic.queues[partition]
            except IndexError:
                return start
            size_bytes = sizes[start]
            batch = queue.open if queue is not None else None
            if batch is None or batch.size_bytes + size_bytes > batch.reserved_bytes:
                batch = self._make_room(topic, partition, batch, size_bytes, Claim.NEW)
                if batch is None:
                    return start
            room_bytes = batch.reserved_bytes - batch.size_bytes
            end = bisect_right(ends, ends[start] + room_bytes, start + 1) - 1
            batch.records += records[start:end]
            batch.size_bytes += ends[end] - ends[start]
            batch.watch_failure(on_failure)
            start = end
        return start

    def _make_room(
        self,
        topic: TopicQueues,
        partition: int | None,
        batch: ProducerBatch | None,
        size_bytes: int,
        claim: Claim,
    ) -> ProducerBatch | None:
        """Return a batch with room for `size_bytes` more: the open `batch`, or a new one.

        Returns None if there is no memory for it.
        """
        if batch is not None and self._reserve_more(batch, size_bytes, claim):
            return batch
        queue = self._next_sticky(topic) if partition is None else topic.queues[partition]
        return self._new_batch(topic, queue, size_bytes, claim)

    def _next_sticky(self, topic: TopicQueues) -> PartitionQueue | None:
        """Return the queue for the next record without a key, after a batch was filled or sent."""
        queue = topic.sticky
        # KIP-794: keep the partition until it has received batch.size bytes, in any number of
        # batches.
        if queue is not None and queue.open is None and topic.sticky_bytes < self._batch_size:
            return queue  # Its last batch was sent before it was full.
        if queue is not None and queue.open is not None:
            queue.open = None
            self._check_at(0)
        return topic.stick_to_next(self._random(), is_adaptive=self._is_adaptive)

    def _reserve_more(self, batch: ProducerBatch, size_bytes: int, claim: Claim) -> bool:
        """Reserve memory so that a batch can grow by `size_bytes`; return whether it succeeded."""
        needed_bytes = batch.size_bytes + size_bytes
        if needed_bytes > batch.limit_bytes:
            return False
        # With doubling, a growing batch reserves memory only a few times, not once per record.
        wanted_bytes = min(batch.limit_bytes, max(needed_bytes, 2 * batch.reserved_bytes))
        more_bytes = wanted_bytes - batch.reserved_bytes
        if not self._may_take(more_bytes, claim):
            return False
        self.used_bytes += more_bytes
        batch.reserved_bytes = wanted_bytes
        return True

    def _may_take(self, nbytes: int, claim: Claim) -> bool:
        if claim is Claim.GRANTED:
            return True
        # A new record must not overtake records that wait for memory.
        if claim is Claim.NEW and self.line_length:
            return False
        # If nothing is reserved, admit any batch. Otherwise, a batch larger than buffer.memory
        # could never be sent.
        return not self.used_bytes or self.used_bytes + nbytes <= self._buffer_memory

    def _new_batch(
        self, topic: TopicQueues, queue: PartitionQueue | None, size_bytes: int, claim: Claim
    ) -> ProducerBatch | None:
        """Open and return a new batch in `queue`; return None if there is no memory for it."""
        if queue is None:
            return None
        if queue.open is not None:
            queue.open = None
            self._check_at(0)
        # A record larger than batch.size gets a batch of its own.
        limit_bytes = max(topic.limit_bytes, HEADER_SIZE + size_bytes)
        reserved_bytes = min(limit_bytes, max(_FIRST_BYTES, HEADER_SIZE + size_bytes))
        if not self._may_take(reserved_bytes, claim):
            # `has_room` returns False until this amount is free.
            self.refused_bytes = reserved_bytes
            return None
        self.used_bytes += reserved_bytes
        topic.used_s = now_s = self._now_s()
        batch = queue.begin_batch(self._lock, created_s=now_s, limit_bytes=limit_bytes)
        batch.reserved_bytes = reserved_bytes
        self.waiting[queue] = None
        self.incomplete[batch] = None
        # Waking the engine for each record would be slow; only the first batch of a linger period
        # wakes it.
        self._check_at(now_s + self._linger_s if self._linger_s else 0)
        return batch

    def _check_at(self, moment_s: float) -> None:
        """Ensure that the engine checks the queues at `moment_s`; 0 means now."""
        if moment_s < self._next_check_s:
            self._next_check_s = moment_s
            self._must_wake = True

    # -- topics ---------------------------------------------------------------------------------

    def update_topic(
        self, name: str, count: int, available: Sequence[int], topic_id: Uuid = ZERO_UUID
    ) -> None:
        """Record that a topic has `count` partitions, of which `available` have a usable leader."""
        with self._lock:
            topic = self._topics.get(name)
            if topic is None:
                # Reuse the queues of a forgotten topic, because their sequence numbers continue.
                topic = self._forgotten.pop(name, None) or TopicQueues(
                    name, batch_size=self._batch_size
                )
                topic.used_s = self._now_s()
            while len(topic.all_queues) < count:
                queue = topic.add_queue(self._make_sequences)
                self._queue_by_partition[queue.topic_partition] = queue
            topic.use(count)
            topic.set_topic_id(topic_id)
            topic.set_available(available)
            self._topics[name] = topic

    def forget_idle_topics(self, idle_s: float) -> list[str]:
        """Forget topics unused for `idle_s` and return their names."""
        forgotten = []
        before_s = self._now_s() - idle_s
        # Records for a forgotten topic wait for metadata again (KIP-526). The queues are kept,
        # because they hold the sequence numbers.
        with self._lock:
            # The sender needs metadata to find the leader of a queued batch.
            busy = {queue.topic.name for queue in self.waiting}
            for name, topic in list(self._topics.items()):
                if topic.used_s < before_s and name not in busy:
                    self._forgotten[name] = self._topics.pop(name)
                    forgotten.append(name)
        return forgotten

    def knows(self, topic: str, partition: int | None) -> bool:
        """Return whether records can be added to the topic, and to the partition if given."""
        known = self._topics.get(topic)
        return known is not None and (partition is None or partition < len(known.queues))

    @property
    def topics(self) -> Sequence[str]:
        """The names of the known topics."""
        return tuple(self._topics)

    def topic(self, name: str) -> TopicQueues | None:
        """Return the queues of a topic, or None if it is unknown. Any thread may call this."""
        return self._topics.get(name)

    def queue_of(self, batch: ProducerBatch) -> PartitionQueue:
        """Return the queue of a batch's partition."""
        return self._queue_by_partition[batch.topic_partition]

    # -- batches --------------------------------------------------------------------------------

    def oldest(self) -> ProducerBatch | None:
        """Return the oldest batch without an outcome, or None."""
        with self._lock:
            return next((batch for batch in self.incomplete if not batch.is_done), None)

    def begin_check(self) -> None:
        """Record that the engine is about to read `waiting`."""
        # This check may miss records that are added from now on, so they must wake the engine
        # again.
        with self._lock:
            self._next_check_s = math.inf

    def end_check(self, next_check_s: float) -> None:
        """Record that the engine will check again at `next_check_s` unless it is woken.

        A value of 0 means that new records need not wake the engine, because no broker can accept
        them.
        """
        # `append` may have requested an earlier check since `begin_check`.
        with self._lock:
            self._next_check_s = min(self._next_check_s, next_check_s)

    def take(self, queue: PartitionQueue) -> ProducerBatch:
        """Remove and return the oldest batch in `queue`; the batch no longer accepts records."""
        with self._lock:
            batch = queue.batches.popleft()
            if queue.open is batch:
                queue.open = None
                if queue is queue.topic.sticky:
                    # KIP-794: the sticky partition changes after batch.size bytes, including the
                    # bytes of batches that were sent before they were full.
                    queue.topic.sticky_bytes += batch.size_bytes
            del self.waiting[queue]
            if queue.batches:
                # Insert the queue at the end, so that the other queues are served first.
                self.waiting[queue] = None
        return batch

    def put_back(self, batch: ProducerBatch) -> None:
        """Queue `batch` again, in its original order."""
        queue = self.queue_of(batch)
        with self._lock:
            queue.insert(batch)
            self.waiting[queue] = None

    def remove(self, batch: ProducerBatch) -> None:
        """Remove `batch` from its queue, if it is queued."""
        queue = self.queue_of(batch)
        with self._lock:
            if batch in queue.batches:
                queue.batches.remove(batch)
                if queue.open is batch:
                    queue.open = None
                if not queue.batches:
                    del self.waiting[queue]

    def replace(self, batch: ProducerBatch, parts: Sequence[ProducerBatch]) -> None:
        """Queue `parts` in place of `batch`, which has been taken."""
        with self._lock:
            incomplete: dict[ProducerBatch, None] = {}
            # `oldest` relies on the order, so the parts must take the place of `batch`.
            for other in self.incomplete:
                incomplete.update(dict.fromkeys(parts) if other is batch else {other: None})
            self.used_bytes += sum(part.reserved_bytes for part in parts) - batch.reserved_bytes
            self.incomplete = incomplete
        # `put_back` acquires the lock, so it must be free.
        for part in parts:
            self.put_back(part)

    def free(self, batch: ProducerBatch) -> None:
        """Release the memory of `batch`; call this before its outcome is reported."""
        # A callback that receives the outcome may send another record, which needs the memory.
        with self._lock:
            self.used_bytes -= batch.reserved_bytes
            self.refused_bytes = 0

    def forget(self, batch: ProducerBatch) -> None:
        """Remove a batch whose outcome has been reported."""
        # Batches stay in `incomplete` until they are done: `ProducerCore.forked` must find them.
        with self._lock:
            del self.incomplete[batch]

    def has_room(self, claim: Claim = Claim.NEW) -> bool:
        """Return whether there is room for the last refused reservation and for a new batch."""
        # Records that are already waiting have priority for free memory.
        if claim is Claim.NEW and self.line_length:
            return False
        wanted_bytes = max(self.refused_bytes, self._batch_size)
        return not self.used_bytes or self.used_bytes + wanted_bytes <= self._buffer_memory

    def want_room(self) -> None:
        """Record that a send waits for memory. Any thread may call this."""
        self.refused_bytes = max(self.refused_bytes, self._batch_size)

    def expedite(self) -> list[ProducerBatch]:
        """Mark all incomplete batches as urgent, so that they do not linger, and return them."""
        with self._lock:
            for batch in self.incomplete:
                batch.is_urgent = True
            return list(self.incomplete)

    def close(self) -> None:
        """Stop accepting records; queued batches are still sent."""
        with self._lock:
            for topic in self._topics.values():
                # Another thread may have looked up the topic already. Without queues, that thread
                # cannot add records to the topic.
                topic.queues, topic.sticky = [], None
            self._topics = {}
        self.expedite()


def accumulator_for(
    settings: ProducerSettings,
    network: Network,
    make_handle: Callable[[ProducerBatch, int], H],
    wake: Callable[[], None],
    transaction: TransactionState | None = None,
) -> Accumulator[H]:
    """Return an accumulator configured by a producer's settings."""
    return Accumulator(
        make_handle,
        batch_size=settings.batch_size,
        buffer_memory=settings.buffer_memory,
        largest_bytes=largest_record_bytes(settings),
        linger_s=settings.linger_ms / 1000,
        is_idempotent=settings.enable_idempotence,
        window=settings.max_in_flight_requests_per_connection,
        make_sequences=None if transaction is None else sequences_factory(transaction, settings),
        ignore_keys=settings.partitioner_ignore_keys,
        is_adaptive=settings.partitioner_adaptive_partitioning_enable,
        now_s=network.now_s,
        random=network.random,
        wake=wake,
    )
