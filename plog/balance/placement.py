"""The replicas of partitions on brokers, with their numbers per topic, broker and rack."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from plog.types import TopicPartition

Assignments: TypeAlias = Mapping[TopicPartition, Sequence[int]]
"""The replicas of each partition, preferred leader first."""

SizedPartition: TypeAlias = tuple[int, TopicPartition]
"""The size of a partition in bytes, and the partition: sorted lists begin with the smallest."""


class Placement:
    """Where the replicas of partitions are. Only moves that a caller makes change it.

    `brokers` are the brokers that may get replicas, with their racks. Partitions can have replicas
    on other brokers, which have failed or are to be removed. Racks count only if each broker has
    one, as in Kafka. A partition without a size counts as empty.
    """

    def __init__(
        self,
        brokers: Mapping[int, str | None],
        assignments: Assignments,
        sizes: Mapping[TopicPartition, int],
    ) -> None:
        self.brokers = sorted(brokers)
        self._racks = dict(brokers) if all(brokers.values()) else {}
        self._sizes = sizes
        self.replicas = {partition: list(some) for partition, some in assignments.items()}
        self._per_broker: Counter[int] = Counter()
        self._per_topic: dict[str, Counter[int]] = {}
        self._on: dict[int, list[SizedPartition]] = {broker: [] for broker in brokers}
        for partition, replicas in self.replicas.items():
            self._per_broker.update(replicas)
            self._per_topic.setdefault(partition.topic, Counter()).update(replicas)
            for broker in replicas:
                self._on.setdefault(broker, []).append(self._sized(partition))
        for some in self._on.values():
            some.sort()
        # The numbers of partitions of a broker that can move to a rack: most pairs of racks have
        # none, so that their partitions need not be searched.
        self._per_rack: Counter[tuple[int, str | None]] = Counter()
        for partition in self.replicas:
            self._count_racks(partition, 1)

    # -- what there is ------------------------------------------------------------------------

    def count(self, broker: int) -> int:
        """Return the number of replicas on a broker."""
        return self._per_broker[broker]

    def topic_count(self, topic: str, broker: int) -> int:
        """Return the number of replicas of a topic on a broker."""
        return self._per_topic[topic][broker]

    def movable(self, source: int, target: int) -> Sequence[SizedPartition]:
        """Return the partitions on a broker, the smallest first; empty if racks allow no move."""
        is_possible = not self._racks or self._per_rack[source, self._racks.get(target)]
        return self._on.get(source, ()) if is_possible else ()

    def size(self, partition: TopicPartition) -> int:
        """Return the size of a partition in bytes."""
        return self._sizes.get(partition, 0)

    # -- racks --------------------------------------------------------------------------------

    def crowding(self, partition: TopicPartition, source: int, target: int) -> int:
        """Return how many replicas more than the source's rack the target's rack would have.

        The other replicas of the partition count. A move from `source` to `target` keeps racks
        apart if the result is at most 0, and improves them if it is below 0.
        """
        if not self._racks:
            return 0
        return self._crowding_in_rack(partition, source, self._racks.get(target))

    def _crowding_in_rack(self, partition: TopicPartition, source: int, rack: str | None) -> int:
        # The racks of brokers that have left the cluster are unknown, and do not count.
        old = self._racks.get(source)
        if old == rack:
            return 0
        difference = 0
        for broker in self.replicas[partition]:
            if broker == source:
                continue
            other = self._racks.get(broker)
            if other is not None:
                difference += (other == rack) - (other == old)
        return difference

    def _count_racks(self, partition: TopicPartition, change: int) -> None:
        for rack in set(self._racks.values()):
            for broker in self.replicas[partition]:
                if self._crowding_in_rack(partition, broker, rack) <= 0:
                    self._per_rack[broker, rack] += change

    def may_move(self, partition: TopicPartition, source: int, target: int) -> bool:
        """Return whether a replica on `source` can move to `target` without sharing more racks."""
        replicas = self.replicas[partition]
        return (
            source in replicas
            and target not in replicas
            and self.crowding(partition, source, target) <= 0
        )

    # -- changes ------------------------------------------------------------------------------

    def move(self, partition: TopicPartition, source: int, target: int) -> None:
        """Move a replica; the new broker takes the place of the old one in the list."""
        replicas = self.replicas[partition]
        assert target not in replicas, "a broker has at most one replica of a partition"
        self._count_racks(partition, -1)
        replicas[replicas.index(source)] = target
        self._count_racks(partition, 1)
        for broker, change in ((source, -1), (target, 1)):
            self._per_broker[broker] += change
            self._per_topic[partition.topic][broker] += change
        sized = self._sized(partition)
        del self._on[source][bisect_left(self._on[source], sized)]
        insort(self._on[target], sized)

    def _sized(self, partition: TopicPartition) -> SizedPartition:
        return self.size(partition), partition


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """Return partitions by topic, sorted.

    >>> list(by_topic([TopicPartition("b", 0), TopicPartition("a", 1)]))
    ['a', 'b']
    """
    found: dict[str, list[TopicPartition]] = {}
    for partition in sorted(partitions):
        found.setdefault(partition.topic, []).append(partition)
    return found


def moved_bytes(
    before: Assignments, after: Assignments, sizes: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the bytes that brokers copy for each partition that gets new replicas.

    >>> partition = TopicPartition("orders", 0)
    >>> moved_bytes({partition: (1, 2)}, {partition: (3, 4)}, {partition: 10})
    {TopicPartition(topic='orders', partition=0): 20}
    """
    added = {partition: len(set(after[partition]) - set(before[partition])) for partition in after}
    return {one: count * sizes.get(one, 0) for one, count in added.items() if count}


def unknown_brokers(assignments: Assignments, brokers: Iterable[int]) -> dict[int, int]:
    """Return the brokers with replicas that are not in `brokers`, with their number of replicas.

    >>> unknown_brokers({TopicPartition("orders", 0): (1, 2)}, [1])
    {2: 1}
    """
    known = set(brokers)
    counts = Counter(one for some in assignments.values() for one in some if one not in known)
    return {broker: counts[broker] for broker in sorted(counts)}
