"""Queues of batches waiting to be sent, one per partition, grouped by topic.

The threads that add records and the engine's thread change them while they hold the accumulator's
lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from threading import Lock

from plog.client.producer.partitioner import choose_at_random, choose_sticky
from plog.client.producer.producer_batch import ProducerBatch
from plog.client.producer.sequence_numbers import PartitionSequences
from plog.hashing import partition_for_key
from plog.records.codec import RecordFields
from plog.types import ZERO_UUID, TopicPartition, Uuid

# Source: Kafka 4.3 MemoryRecordsBuilder.COMPRESSION_RATE_ESTIMATION_FACTOR.
_SAFETY = 1.05
"""A factor for compressed batches that turn out larger than expected."""
# The expected ratio falls slowly and rises fast, because a batch that is too large must be split.
# Source: Kafka 4.3 CompressionRatioEstimator.
_RATIO_FALL, _RATIO_RISE = 0.005, 0.05
"""The step by which the expected ratio falls or rises after a smaller or larger batch."""
_MAX_LIMIT_RATIO = 16
"""The maximum uncompressed size of a batch of compressible records, as a multiple of batch.size."""
_MAX_LIMIT_BYTES = 1 << 20
"""The maximum uncompressed size of a compressible batch; compression blocks the event loop
(decision 0013)."""
# The cache pays off because keys recur, and hashing a key takes longer than the rest of `send`.
_MAX_KEYS = 4096
"""The size of a topic's cache of partitions by key."""


class PartitionQueue:
    """A partition's queued batches, in the order in which they must be written.

    Only the last batch can be open for more records.
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
        # Search from the front: batches that are queued again are usually the oldest.
        while place < len(self.batches) and self.batches[place].order < batch.order:
            place += 1
        self.batches.insert(place, batch)


class TopicQueues:
    """The queues of a topic's partitions; it also chooses partitions for the topic's records."""

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
        """Return the partition for records with `key`. Thread-safe, without a lock."""
        # Read the attribute only once: `use` replaces it when the number of partitions changes.
        known = self._partition_by_key
        partition = known.get(key)
        if partition is None:
            # After `close`, there are no queues, and the result is not used.
            partition = partition_for_key(key, len(self.queues) or 1)
            # Clearing the whole cache is simple and fast. The frequent keys soon return to it.
            if len(known) >= _MAX_KEYS:
                known.clear()
            known[key] = partition
        return partition

    def by_partition(
        self, records: Sequence[RecordFields]
    ) -> Mapping[int | None, Sequence[RecordFields]]:
        """Return the records by the partition of their key; None for records without a key."""
        # The usual case; a loop would take as long as the rest of `append_all`.
        if list(map(itemgetter(2), records)).count(None) == len(records):
            return {None: records}
        runs: dict[int | None, list[RecordFields]] = {}
        for record in records:
            key = record[2]
            runs.setdefault(None if key is None else self.partition_of(key), []).append(record)
        return runs

    def add_queue(
        self, make_sequences: Callable[[TopicPartition], PartitionSequences[ProducerBatch]] | None
    ) -> PartitionQueue:
        """Add a queue for one more partition; call `use` afterwards."""
        partition = TopicPartition(self.name, len(self.all_queues))
        sequences = None if make_sequences is None else make_sequences(partition)
        queue = PartitionQueue(self, partition, sequences)
        self.all_queues.append(queue)
        return queue

    def use(self, count: int) -> None:
        """Set the number of partitions that the topic has now."""
        if count != len(self.queues):
            self.queues = self.all_queues[:count]
            # With a different number of partitions, keys map to different partitions.
            self._partition_by_key = {}

    def set_topic_id(self, topic_id: Uuid) -> None:
        """Set the topic's ID; a changed ID means that the topic was recreated."""
        if topic_id != self.topic_id:
            was_known, self.topic_id = self.topic_id != ZERO_UUID, topic_id
            for queue in self.all_queues if was_known else ():
                # For the new topic, the brokers do not have any state of this producer.
                if queue.sequences is not None:
                    queue.sequences.begin_unknown()

    def set_available(self, available: Sequence[int]) -> None:
        """Set the partitions for records without a key; if empty, all partitions are used."""
        self.available = tuple(available)
        # Do not let records without a key wait for a partition that has no leader.
        if self.sticky is not None and self.sticky.topic_partition.partition not in available:
            self.sticky = None

    def stick_to_next(self, chance: float, *, is_adaptive: bool) -> PartitionQueue | None:
        """Choose the next partition for records without a key; return None without partitions."""
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
        """Update the expected compression ratio, and with it the size limit of later batches."""
        if ratio > self.ratio:
            self.ratio = max(self.ratio + _RATIO_RISE, ratio)
        else:
            self.ratio = max(self.ratio - _RATIO_FALL, ratio)
        limit_bytes = int(self._batch_size / (self.ratio * _SAFETY))
        largest_bytes = min(_MAX_LIMIT_RATIO * self._batch_size, _MAX_LIMIT_BYTES)
        self.limit_bytes = min(limit_bytes, max(self._batch_size, largest_bytes))
