"""Queues of batches waiting to be sent, one per partition, and the topics they belong to.

All changes are made under the accumulator's lock, by the threads that add records and by the
engine's thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from threading import Lock

from plog.client.producer.partitioner import choose_at_random, choose_sticky
from plog.client.producer.producer_batch import ProducerBatch
from plog.client.producer.sequence_numbers import PartitionSequences
from plog.hashing import partition_for_key
from plog.types import ZERO_UUID, TopicPartition, Uuid

# Source: Kafka 4.3 MemoryRecordsBuilder.COMPRESSION_RATE_ESTIMATION_FACTOR.
_SAFETY = 1.05
"""How much larger a compressed batch may be than expected, as a factor."""
# The expected ratio falls slowly and rises fast, because a batch that is too large must be split.
# Source: Kafka 4.3 CompressionRatioEstimator.
_RATIO_FALL, _RATIO_RISE = 0.005, 0.05
"""How much the expected ratio falls or rises after a smaller or larger batch than expected."""
_MAX_LIMIT_RATIO = 16
"""The maximum uncompressed size of a batch of compressible records, as a multiple of batch.size."""
_MAX_LIMIT_BYTES = 1 << 20
"""The maximum uncompressed size of a compressible batch: compressing it blocks the event loop
(decision 0013)."""
_MAX_KEYS = 4096
"""Size of a topic's cache of partitions by key. Keys recur, and hashing one takes longer than the
rest of the work of `send` for a record."""


class PartitionQueue:
    """The batches of a partition in the order in which they must be written; retries come first.

    Only the last batch may be `open`, that is, accept further records.
    """

    __slots__ = ("_begun", "batches", "on_wire", "open", "sequences", "topic", "topic_partition")

    def __init__(
        self,
        topic: TopicQueues,
        topic_partition: TopicPartition,
        sequences: PartitionSequences[ProducerBatch] | None,
    ) -> None:
        self.topic = topic
        self.topic_partition = topic_partition
        self.batches: deque[ProducerBatch] = deque()
        self.open: ProducerBatch | None = None
        self.sequences = sequences
        """None for a producer that is not idempotent."""
        self.on_wire = 0
        """Number of the partition's batches that are in flight."""
        self._begun = 0

    def begin_batch(self, lock: Lock, *, created_s: float, limit_bytes: int) -> ProducerBatch:
        """Append a new open batch and return it."""
        self._begun += 1
        batch = ProducerBatch(
            self.topic_partition,
            lock,
            order=(self._begun, 0),
            created_s=created_s,
            limit_bytes=limit_bytes,
        )
        self.batches.append(batch)
        self.open = batch
        return batch

    def insert(self, batch: ProducerBatch) -> None:
        """Queue `batch` again, before all batches created after it."""
        place = 0
        # Searched from the front: the batches that are queued again are usually the oldest.
        while place < len(self.batches) and self.batches[place].order < batch.order:
            place += 1
        self.batches.insert(place, batch)


class TopicQueues:
    """The queues of a topic's partitions, and the choice of partitions for its records."""

    __slots__ = (
        "_batch_size",
        "_partition_by_key",
        "all_queues",
        "available",
        "limit_bytes",
        "name",
        "queues",
        "ratio",
        "sticky",
        "sticky_bytes",
        "topic_id",
        "used_s",
    )

    def __init__(self, name: str, *, batch_size: int) -> None:
        self.name = name
        self._batch_size = batch_size
        self._partition_by_key: dict[bytes, int] = {}
        self.all_queues: list[PartitionQueue] = []
        """The queues of all partitions that have ever existed."""
        self.queues: list[PartitionQueue] = []
        """The queues of existing partitions; a recreated topic may have fewer."""
        self.available: Sequence[int] = ()
        """The partitions whose leader accepts requests."""
        self.sticky: PartitionQueue | None = None
        """The queue that currently receives records without a key."""
        self.sticky_bytes = 0
        """Bytes already sent to the sticky partition in batches that were not full."""
        self.limit_bytes = batch_size
        """Maximum uncompressed size of a batch."""
        self.topic_id = ZERO_UUID
        """All zeros if the brokers do not return topic IDs."""
        self.used_s = 0.0
        """When the topic's last batch was created."""
        self.ratio = 1.0
        """Expected ratio of compressed to uncompressed batch size."""

    def partition_of(self, key: bytes) -> int:
        """Return the partition for records with `key`. Any thread, without a lock."""
        known = self._partition_by_key  # `use` replaces it when the number of partitions changes.
        partition = known.get(key)
        if partition is None:
            # After `close`, there are no queues, and the result is not used.
            partition = partition_for_key(key, len(self.queues) or 1)
            # Keys recur, so an emptied cache soon holds the frequent ones again.
            if len(known) >= _MAX_KEYS:
                known.clear()
            known[key] = partition
        return partition

    def add_queue(
        self, make_sequences: Callable[[TopicPartition], PartitionSequences[ProducerBatch]] | None
    ) -> PartitionQueue:
        """Add the queue of one more partition; call `use` afterwards."""
        partition = TopicPartition(self.name, len(self.all_queues))
        sequences = None if make_sequences is None else make_sequences(partition)
        queue = PartitionQueue(self, partition, sequences)
        self.all_queues.append(queue)
        return queue

    def use(self, count: int) -> None:
        """Set the number of partitions that the topic has now."""
        if count != len(self.queues):
            self.queues = self.all_queues[:count]
            self._partition_by_key = {}  # Keys map to other partitions now.

    def set_topic_id(self, topic_id: Uuid) -> None:
        """Set the topic's ID; a changed ID means that the topic was recreated."""
        if topic_id != self.topic_id:
            was_known, self.topic_id = self.topic_id != ZERO_UUID, topic_id
            for queue in self.all_queues if was_known else ():
                # The brokers have no state of this producer for the new topic.
                if queue.sequences is not None:
                    queue.sequences.begin_unknown()

    def set_available(self, available: Sequence[int]) -> None:
        """Set the partitions for records without a key; an empty set stands for all partitions."""
        self.available = tuple(available)
        # The next record without a key goes to another partition instead of waiting until this one
        # has a leader.
        if self.sticky is not None and self.sticky.topic_partition.partition not in available:
            self.sticky = None

    def stick_to_next(self, chance: float, *, is_adaptive: bool) -> PartitionQueue | None:
        """Choose the next partition for records without a key; None if there are no partitions."""
        if not self.queues:
            return None
        available = self.available
        queued = [len(self.queues[x].batches) for x in available] if is_adaptive else ()
        # KIP-794: if all queues are empty, all weights are equal, so a random choice is enough.
        if any(queued):
            partition = choose_sticky(available, queued, chance)
        else:
            partition = choose_at_random(len(self.queues), available, chance)
        self.sticky, self.sticky_bytes = self.queues[partition], 0
        return self.sticky

    def expect_ratio(self, ratio: float) -> None:
        """Update the expected ratio after a batch, and with it the size limit of later batches."""
        if ratio > self.ratio:
            self.ratio = max(self.ratio + _RATIO_RISE, ratio)
        else:
            self.ratio = max(self.ratio - _RATIO_FALL, ratio)
        limit_bytes = int(self._batch_size / (self.ratio * _SAFETY))
        largest_bytes = min(_MAX_LIMIT_RATIO * self._batch_size, _MAX_LIMIT_BYTES)
        self.limit_bytes = min(limit_bytes, max(self._batch_size, largest_bytes))
