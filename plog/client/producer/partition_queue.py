"""The batches of one partition that wait, and what is known of its topic.

Changed under the accumulator's lock: by any thread that adds a record, and by the engine's.
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

_SAFETY = 1.05
"""How much larger a batch may come out than compression let expect."""
_RATIO_FALL, _RATIO_RISE = 0.005, 0.05
"""By how much the expectation changes with a batch that came out smaller, or larger."""
_LARGEST_LIMIT = 16
"""Batches of what compresses well hold up to so many times batch.size,"""
_LARGEST_LIMIT_BYTES = 1 << 20
"""but no more than this, beyond batch.size: an event loop stands still while one is compressed."""
_MOST_KEYS = 4096
"""How many keys a topic remembers the partitions of: many come again, and hashing takes longer than
all else that is done for a record."""


class PartitionQueue:
    """Batches in the order in which they are to be written; those sent in vain come first.

    Only the last may be `open`, which is to say that records are added to it.
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
        """How many of its batches are."""
        self._begun = 0

    def begin_batch(self, lock: Lock, *, created_s: float, limit_bytes: int) -> ProducerBatch:
        """A new batch, open."""
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
        """`batch` waits again, before all that were begun after it."""
        place = 0
        while place < len(self.batches) and self.batches[place].order < batch.order:
            place += 1
        self.batches.insert(place, batch)


class TopicQueues:
    """The queues of a topic's partitions."""

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
        """Of every partition there has ever been."""
        self.queues: list[PartitionQueue] = []
        """Of those there are: a topic may have been made anew, with fewer."""
        self.available: Sequence[int] = ()
        """The partitions that have a leader which takes something."""
        self.sticky: PartitionQueue | None = None
        """Where records without a key go now."""
        self.sticky_bytes = 0
        """What has gone there already, in batches that were not full."""
        self.limit_bytes = batch_size
        """How large, uncompressed, a batch may grow."""
        self.topic_id = ZERO_UUID
        """Zeros where brokers do not tell."""
        self.used_s = 0.0
        """When its last batch was begun."""
        self.ratio = 1.0
        """Of a batch's size compressed to that uncompressed, as expected."""

    def partition_of(self, key: bytes) -> int:
        """Where the records of `key` go. Any thread, with no lock held."""
        known = self._partition_by_key  # Another one as soon as there are more partitions.
        partition = known.get(key)
        if partition is None:
            partition = partition_for_key(key, len(self.queues) or 1)  # None when it is closed.
            if len(known) >= _MOST_KEYS:
                known.clear()
            known[key] = partition
        return partition

    def add_queue(
        self, make_sequences: Callable[[TopicPartition], PartitionSequences[ProducerBatch]] | None
    ) -> PartitionQueue:
        """The queue of one more partition; `use` has to be told."""
        partition = TopicPartition(self.name, len(self.all_queues))
        sequences = None if make_sequences is None else make_sequences(partition)
        queue = PartitionQueue(self, partition, sequences)
        self.all_queues.append(queue)
        return queue

    def use(self, count: int) -> None:
        """There are so many partitions now."""
        if count != len(self.queues):
            self.queues = self.all_queues[:count]
            self._partition_by_key = {}  # Keys have other partitions now.

    def is_now(self, topic_id: Uuid) -> None:
        """The topic has this id; a new one if it was made anew under its name."""
        if topic_id != self.topic_id:
            was_known, self.topic_id = self.topic_id != ZERO_UUID, topic_id
            for queue in self.all_queues if was_known else ():
                if queue.sequences is not None:
                    queue.sequences.begin_unknown()

    def set_available(self, available: Sequence[int]) -> None:
        """Records without a key go to `available` from now on, or anywhere if there is none."""
        self.available = tuple(available)
        if self.sticky is not None and self.sticky.topic_partition.partition not in available:
            self.sticky = None

    def stick_to_next(self, chance: float, *, is_adaptive: bool) -> PartitionQueue | None:
        """Change the partition for records without a key; None if there is no partition."""
        if not self.queues:
            return None
        available = self.available
        queued = [len(self.queues[x].batches) for x in available] if is_adaptive else ()
        if any(queued):
            partition = choose_sticky(available, queued, chance)
        else:
            partition = choose_at_random(len(self.queues), available, chance)
        self.sticky, self.sticky_bytes = self.queues[partition], 0
        return self.sticky

    def expect_ratio(self, ratio: float) -> None:
        """A batch came out at `ratio` of its size: let the next ones fill batch.size with it."""
        if ratio > self.ratio:
            self.ratio = max(self.ratio + _RATIO_RISE, ratio)
        else:
            self.ratio = max(self.ratio - _RATIO_FALL, ratio)
        limit_bytes = int(self._batch_size / (self.ratio * _SAFETY))
        largest_bytes = min(_LARGEST_LIMIT * self._batch_size, _LARGEST_LIMIT_BYTES)
        self.limit_bytes = min(limit_bytes, max(self._batch_size, largest_bytes))
