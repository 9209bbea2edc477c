"""Choose preferred leaders among the replicas of partitions, which copies no data.

The preferred leader is the first replica in the list. Leaders are balanced if no broker leads more
than one partition of a topic more than another broker, and no more than one partition in total, as
far as the replicas allow it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from plog.balance.leveling import Leveling
from plog.balance.placement import Assignments, SizedPartition, by_topic
from plog.types import TopicPartition

MayLead = Callable[[TopicPartition, int], bool]
"""Whether a broker can lead a partition whose replica it has."""


class Leaders:
    """The preferred leaders of partitions, with their numbers per topic and broker."""

    def __init__(self, brokers: Sequence[int], assignments: Assignments) -> None:
        self._brokers = sorted(brokers)
        self.replicas = {partition: list(some) for partition, some in assignments.items()}
        self._per_broker: Counter[int] = Counter()
        self._per_topic: dict[str, Counter[int]] = {}
        # The partitions by their leader and each of their other replicas, which could lead.
        self._led: dict[tuple[int, int], dict[TopicPartition, None]] = {}
        for partition in sorted(self.replicas):
            self._count(partition, 1)

    def count(self, broker: int) -> int:
        """Return the number of partitions that prefer a broker as their leader."""
        return self._per_broker[broker]

    def _topic_count(self, topic: str, broker: int) -> int:
        return self._per_topic[topic][broker]

    def _count(self, partition: TopicPartition, change: int) -> None:
        leader = self.replicas[partition][0]
        self._per_broker[leader] += change
        self._per_topic.setdefault(partition.topic, Counter())[leader] += change
        for other in self.replicas[partition][1:]:
            led = self._led.setdefault((leader, other), {})
            if change > 0:
                led[partition] = None
            else:
                del led[partition]

    def _lead(self, partition: TopicPartition, source: int, target: int) -> None:
        """Put `target` first; the other replicas keep their order, and `source` comes last."""
        self._count(partition, -1)
        others = [one for one in self.replicas[partition] if one not in (source, target)]
        self.replicas[partition] = [target, *others, source]
        self._count(partition, 1)

    # -- plans --------------------------------------------------------------------------------

    def balance(self, may_lead: MayLead, *, only_to: Collection[int] | None = None) -> None:
        """Make the numbers of leaders equal, first for each topic, then in total.

        With `only_to`, only these brokers become leaders of further partitions, up to their share.
        """
        share = -(-len(self.replicas) // max(1, len(self._brokers)))

        def may_move(partition: TopicPartition, source: int, target: int) -> bool:
            if only_to is not None and (target not in only_to or self.count(target) >= share):
                return False
            return target in self.replicas[partition] and may_lead(partition, target)

        for topic, partitions in by_topic(self.replicas).items():
            self._level_topic(topic, partitions, may_move)

        def keeps_topic(partition: TopicPartition, source: int, target: int) -> bool:
            return self._topic_count(partition.topic, source) > self._topic_count(
                partition.topic, target
            ) and may_move(partition, source, target)

        Leveling(
            self._brokers,
            count=self.count,
            tie=lambda broker: 0,
            items=self._led_by,
            may_move=keeps_topic,
            move=self._lead,
        ).run()

    def _level_topic(
        self,
        topic: str,
        partitions: Sequence[TopicPartition],
        may_move: Callable[[TopicPartition, int, int], bool],
    ) -> None:
        Leveling(
            self._brokers,
            count=lambda broker: self._topic_count(topic, broker),
            tie=self.count,
            items=lambda source, _: [(0, x) for x in partitions if self.replicas[x][0] == source],
            may_move=may_move,
            move=self._lead,
        ).run()

    def _led_by(self, source: int, target: int) -> Iterator[SizedPartition]:
        return ((0, partition) for partition in self._led.get((source, target), ()))

    def leave(
        self, broker: int, may_lead: MayLead, *, led: Collection[TopicPartition] = ()
    ) -> list[TopicPartition]:
        """Give the leaders of a broker to other replicas; return partitions where none can lead.

        `led` are the partitions that it leads now, although they may prefer other leaders.
        """
        stuck = []
        leaving = {partition for partition, some in self.replicas.items() if some[0] == broker}
        # An election of the preferred leader would not end its leadership of these.
        leaving.update(one for one in led if not may_lead(one, self.replicas[one][0]))
        for partition in sorted(leaving):
            others = [
                one
                for one in self.replicas[partition]
                if one != broker and may_lead(partition, one)
            ]
            if not others:
                stuck.append(partition)
                continue
            target = min(
                others,
                key=lambda one: (
                    self._topic_count(partition.topic, one),  # Used at once.
                    self.count(one),
                    one,
                ),
            )
            self._lead(partition, broker, target)
        return stuck


def changed(before: Assignments, after: Assignments) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the new replicas of the partitions whose replicas or preferred leaders differ.

    >>> partition = TopicPartition("orders", 0)
    >>> changed({partition: [1, 2]}, {partition: [2, 1]})
    {TopicPartition(topic='orders', partition=0): (2, 1)}
    """
    return {
        partition: tuple(after[partition])
        for partition in sorted(after)
        if tuple(after[partition]) != tuple(before[partition])
    }


def leader_counts(assignments: Mapping[TopicPartition, Sequence[int]]) -> Counter[int]:
    """Return how many partitions prefer each broker as their leader."""
    return Counter(replicas[0] for replicas in assignments.values())
