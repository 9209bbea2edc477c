"""Records that wait to be sent, in batches for each partition: where all threads meet.

`append` is the hot path of a producer: any thread may call it, it never waits, and it costs a lock,
a tuple and a handle. Nothing is encoded here; the engine's thread takes whole batches away, oldest
first, and does that. Memory is counted by the batch: from its first record until its outcome is
known it holds a share of buffer.memory, which doubles as the batch grows. So a producer that sends
a little to each of a thousand partitions does not run out of it, however large a batch may get.

Source: KIP-480, KIP-794; Kafka 4.3 RecordAccumulator, BuiltInPartitioner, BufferPool.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from enum import IntEnum
from threading import Lock
from typing import Generic, TypeVar

from plog.client.network.ports import Network
from plog.client.producer.partition_queue import PartitionQueue, TopicQueues
from plog.client.producer.producer_batch import OnDelivery, ProducerBatch, RecordHandle
from plog.client.producer.sequence_numbers import REMEMBERED_BATCHES, PartitionSequences
from plog.client.settings import ProducerSettings
from plog.client.transactions.transaction_sequences import transactional
from plog.client.transactions.transaction_state import TransactionState
from plog.records.batch import HEADER_SIZE
from plog.records.codec import NO_OFFSET, Header
from plog.types import ZERO_UUID, TopicPartition, Uuid

H = TypeVar("H", bound=RecordHandle)

_FIRST_BYTES = 16 * 1024
"""What a batch holds of buffer.memory at first."""


class Claim(IntEnum):
    """What a record may take of buffer.memory."""

    NEW = 0
    """What is free, while nobody waits for it."""
    FIRST = 1
    """What is free: it is the first of those that wait."""
    GRANTED = 2
    """As much as it needs: there was room a moment ago."""


class Accumulator(Generic[H]):
    """See the module's text. What is not said to be for any thread is for the engine's alone."""

    def __init__(
        self,
        make_handle: Callable[[ProducerBatch, int], H],
        *,
        batch_size: int,
        buffer_memory: int,
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
        self._batch_size = max(batch_size, 1)
        self._buffer_memory = buffer_memory
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
        self._next_look_s = math.inf
        """When the engine looks here again; 0 when it was told to do so now."""
        self.waiting: dict[PartitionQueue, None] = {}
        """Queues with batches, the one served last at the end."""
        self.incomplete: dict[ProducerBatch, None] = {}
        """Batches without an outcome, and those that get it now, oldest first."""
        self.used_bytes = 0
        """How much of buffer.memory is in use."""
        self.refused_bytes = 0
        """What there was no room for, the last time."""
        self.line_length = 0
        """How many records wait for memory. While any does, no batch lingers."""

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
        """Add a record; None if it has to wait: for its topic or partition, or for memory.

        `size_bytes` is about what it takes. What fits into a batch as large as it is goes in by any
        `claim`.
        """
        topic = self._topics.get(topic_name)
        if topic is None:
            return None
        if partition is None and key is not None and not self._ignore_keys:
            partition = topic.partition_of(key)
        with self._lock:
            try:
                queue = topic.sticky if partition is None else topic.queues[partition]
            except IndexError:
                return None
            batch = queue.open if queue is not None else None
            if batch is None or (
                batch.size_bytes + size_bytes > batch.reserved_bytes
                and not self._reserve_more(batch, size_bytes, claim)
            ):
                if partition is None:
                    queue = self._next_sticky(topic)
                batch = self._new_batch(topic, queue, size_bytes, claim)
            if batch is not None:
                index = len(batch.records)
                batch.records.append((NO_OFFSET, timestamp, key, value, headers))
                batch.size_bytes += size_bytes
                if on_delivery is not None:
                    batch.watch_new(on_delivery)
        if self._must_wake:  # Never with the lock held: it may be our own thread that wakes.
            self._must_wake = False
            self._wake()
        return None if batch is None else self._make_handle(batch, index)

    def _next_sticky(self, topic: TopicQueues) -> PartitionQueue | None:
        """Where the next record without a key goes, the open batch being full or sent."""
        queue = topic.sticky
        if queue is not None and queue.open is None and topic.sticky_bytes < self._batch_size:
            return queue  # Its batch was sent before it was full.
        if queue is not None and queue.open is not None:
            queue.open = None
            self._look_at(0)
        return topic.stick_to_next(self._random(), is_adaptive=self._is_adaptive)

    def _reserve_more(self, batch: ProducerBatch, size_bytes: int, claim: Claim) -> bool:
        """Whether a batch may still grow by so much: up to its limit, while there is memory."""
        needed_bytes = batch.size_bytes + size_bytes
        if needed_bytes > batch.limit_bytes:
            return False
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
        if claim is Claim.NEW and self.line_length:
            return False
        return not self.used_bytes or self.used_bytes + nbytes <= self._buffer_memory

    def _new_batch(
        self, topic: TopicQueues, queue: PartitionQueue | None, size_bytes: int, claim: Claim
    ) -> ProducerBatch | None:
        """Another batch of `queue`, the open one being full; None if there is no memory for it."""
        if queue is None:
            return None
        if queue.open is not None:
            queue.open = None
            self._look_at(0)
        limit_bytes = max(topic.limit_bytes, HEADER_SIZE + size_bytes)
        reserved_bytes = min(limit_bytes, max(_FIRST_BYTES, HEADER_SIZE + size_bytes))
        if not self._may_take(reserved_bytes, claim):
            self.refused_bytes = reserved_bytes
            return None
        self.used_bytes += reserved_bytes
        topic.used_s = now_s = self._now_s()
        batch = queue.begin_batch(self._lock, created_s=now_s, limit_bytes=limit_bytes)
        batch.reserved_bytes = reserved_bytes
        self.waiting[queue] = None
        self.incomplete[batch] = None
        self._look_at(now_s + self._linger_s if self._linger_s else 0)
        return batch

    def _look_at(self, moment_s: float) -> None:
        """There will be something to send at `moment_s`; now, for 0."""
        if moment_s < self._next_look_s:
            self._next_look_s = moment_s
            self._must_wake = True

    # -- topics ---------------------------------------------------------------------------------

    def know_topic(
        self, name: str, count: int, available: Sequence[int], topic_id: Uuid = ZERO_UUID
    ) -> None:
        """A topic has `count` partitions; those `available` have a leader that takes something."""
        with self._lock:
            topic = self._topics.get(name)
            if topic is None:
                topic = self._forgotten.pop(name, None) or TopicQueues(
                    name, batch_size=self._batch_size
                )
                topic.used_s = self._now_s()
            while len(topic.all_queues) < count:
                queue = topic.add_queue(self._make_sequences)
                self._queue_by_partition[queue.topic_partition] = queue
            topic.use(count)
            topic.is_now(topic_id)
            topic.set_available(available)
            self._topics[name] = topic

    def forget_idle_topics(self, idle_s: float) -> list[str]:
        """Forget topics to which nothing was sent for so long: records have to wait for them again.

        Their sequence numbers are remembered.
        """
        forgotten = []
        before_s = self._now_s() - idle_s
        with self._lock:
            busy = {queue.topic.name for queue in self.waiting}
            for name, topic in list(self._topics.items()):
                if topic.used_s < before_s and name not in busy:
                    self._forgotten[name] = self._topics.pop(name)
                    forgotten.append(name)
        return forgotten

    def knows(self, topic: str, partition: int | None) -> bool:
        """Whether records can be added for the partition, or for one of the topic's."""
        known = self._topics.get(topic)
        return known is not None and (partition is None or partition < len(known.queues))

    @property
    def topics(self) -> Sequence[str]:
        """The topics that are known."""
        return tuple(self._topics)

    def topic(self, name: str) -> TopicQueues | None:
        """What is known of a topic. Any thread."""
        return self._topics.get(name)

    def queue_of(self, batch: ProducerBatch) -> PartitionQueue:
        """The queue of the partition to which a batch belongs."""
        return self._queue_by_partition[batch.topic_partition]

    # -- batches --------------------------------------------------------------------------------

    def oldest(self) -> ProducerBatch | None:
        """The oldest batch that has no outcome."""
        with self._lock:
            return next((batch for batch in self.incomplete if not batch.is_done), None)

    def begin_look(self) -> None:
        """The engine looks at `waiting` now: what comes from here on wakes it again."""
        with self._lock:
            self._next_look_s = math.inf

    def end_look(self, next_look_s: float) -> None:
        """The engine has looked, and does so again at `next_look_s` if nothing happens before.

        0 says that no record that comes matters until then: there is no broker to take it.
        """
        with self._lock:
            self._next_look_s = min(self._next_look_s, next_look_s)

    def take(self, queue: PartitionQueue) -> ProducerBatch:
        """The oldest batch of `queue`, to which no record is added any more."""
        with self._lock:
            batch = queue.batches.popleft()
            if queue.open is batch:
                queue.open = None
                if queue is queue.topic.sticky:
                    queue.topic.sticky_bytes += batch.size_bytes
            del self.waiting[queue]
            if queue.batches:
                self.waiting[queue] = None  # Behind the others.
        return batch

    def put_back(self, batch: ProducerBatch) -> None:
        """`batch` waits again, in its place among the others."""
        queue = self.queue_of(batch)
        with self._lock:
            queue.insert(batch)
            self.waiting[queue] = None

    def remove(self, batch: ProducerBatch) -> None:
        """`batch` waits no more, if it did."""
        queue = self.queue_of(batch)
        with self._lock:
            if batch in queue.batches:
                queue.batches.remove(batch)
                if queue.open is batch:
                    queue.open = None
                if not queue.batches:
                    del self.waiting[queue]

    def replace(self, batch: ProducerBatch, parts: Sequence[ProducerBatch]) -> None:
        """`parts` wait in the place of `batch`, which was taken."""
        with self._lock:
            incomplete: dict[ProducerBatch, None] = {}
            for other in self.incomplete:  # As old as the batch itself, and so in its place.
                incomplete.update(dict.fromkeys(parts) if other is batch else {other: None})
            self.used_bytes += sum(part.reserved_bytes for part in parts) - batch.reserved_bytes
            self.incomplete = incomplete
        for part in parts:
            self.put_back(part)

    def free(self, batch: ProducerBatch) -> None:
        """`batch` is about to have its outcome: its memory is free."""
        with self._lock:
            self.used_bytes -= batch.reserved_bytes
            self.refused_bytes = 0

    def forget(self, batch: ProducerBatch) -> None:
        """`batch` has its outcome. Not earlier: who forks now finds it in `incomplete` or done."""
        with self._lock:
            del self.incomplete[batch]

    def has_room(self, claim: Claim = Claim.NEW) -> bool:
        """Whether what there was no room for the last time would fit now, and one more batch."""
        if claim is Claim.NEW and self.line_length:
            return False
        wanted_bytes = max(self.refused_bytes, self._batch_size)
        return not self.used_bytes or self.used_bytes + wanted_bytes <= self._buffer_memory

    def want_room(self) -> None:
        """Somebody waits for memory. Any thread."""
        self.refused_bytes = max(self.refused_bytes, self._batch_size)

    def hurry(self) -> list[ProducerBatch]:
        """Let no batch linger that is there now; all of them that have no outcome yet."""
        with self._lock:
            for batch in self.incomplete:
                batch.is_urgent = True
            return list(self.incomplete)

    def close(self) -> None:
        """Take no further record; what is there stays to be sent."""
        with self._lock:
            for topic in self._topics.values():
                topic.queues, topic.sticky = [], None
            self._topics = {}
        self.hurry()


def accumulator_for(
    settings: ProducerSettings,
    network: Network,
    make_handle: Callable[[ProducerBatch, int], H],
    wake: Callable[[], None],
    transaction: TransactionState | None = None,
) -> Accumulator[H]:
    """One as a producer's settings want it."""
    return Accumulator(
        make_handle,
        batch_size=settings.batch_size,
        buffer_memory=settings.buffer_memory,
        linger_s=settings.linger_ms / 1000,
        is_idempotent=settings.enable_idempotence,
        window=settings.max_in_flight_requests_per_connection,
        make_sequences=None if transaction is None else transactional(transaction, settings),
        ignore_keys=settings.partitioner_ignore_keys,
        is_adaptive=settings.partitioner_adaptive_partitioning_enable,
        now_s=network.now_s,
        random=network.random,
        wake=wake,
    )
