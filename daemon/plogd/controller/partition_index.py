"""The partitions that need attention: without a leader, with another one, or being reassigned.

The index is updated with every change of the context, so that gauges, elections and reassignments
do not look at all partitions of the cluster. Source: Kafka 3.9
ControllerContext.offlinePartitionCount, preferredReplicaImbalanceCount, partitionsBeingReassigned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from typing import Final, NamedTuple

from plogd.metadata.cache import NO_LEADER, PartitionState


class PartitionCounts(NamedTuple):
    """Numbers of partitions, without those of topics that are being deleted."""

    leaderless: int = 0
    not_preferred: int = 0


NO_PARTITIONS: Final = PartitionCounts()


class PartitionSet:
    """The partitions with a property, as numbers by topic; `count` is their total number."""

    def __init__(self, holds: Callable[[PartitionState], bool]) -> None:
        self._holds = holds
        self._numbers: dict[str, set[int]] = {}
        self.count = 0

    def of(self, topic: str) -> Set[int]:
        """Return the numbers of a topic's partitions that have the property."""
        return self._numbers.get(topic, frozenset())

    def by_topic(self) -> Mapping[str, Set[int]]:
        """Return the topics that have such partitions, with their numbers."""
        return self._numbers

    def count_without(self, excluded: Iterable[str]) -> int:
        """Return the number of partitions, without those of the `excluded` topics."""
        return self.count - sum(len(self.of(name)) for name in excluded)

    def update(self, topic: str, states: Iterable[PartitionState]) -> None:
        """Note the new states of partitions."""
        numbers = self._numbers.setdefault(topic, set())
        old_count = len(numbers)
        for state in states:
            if self._holds(state):
                numbers.add(state.partition)
            else:
                numbers.discard(state.partition)
        self.count += len(numbers) - old_count
        if not numbers:
            del self._numbers[topic]

    def drop(self, topic: str) -> None:
        """Remove the partitions of a topic."""
        self.count -= len(self._numbers.pop(topic, ()))


class PartitionIndex:
    """The partitions of all topics that need attention."""

    def __init__(self) -> None:
        self.leaderless = PartitionSet(lambda state: state.leader == NO_LEADER)
        self.not_preferred = PartitionSet(lambda state: state.leader != state.replicas[0])
        """Partitions that their preferred leader does not lead, including those without one."""
        self.reassigning = PartitionSet(lambda state: state.is_reassigning)

    @property
    def _sets(self) -> tuple[PartitionSet, ...]:
        return self.leaderless, self.not_preferred, self.reassigning

    def update(self, topic: str, states: Iterable[PartitionState]) -> None:
        """Note the new states of partitions."""
        some = tuple(states)
        for each in self._sets:
            each.update(topic, some)

    def counts(self, excluded: Iterable[str]) -> PartitionCounts:
        """Return the numbers of partitions, without those of the `excluded` topics."""
        names = tuple(excluded)
        return PartitionCounts(
            leaderless=self.leaderless.count_without(names),
            not_preferred=self.not_preferred.count_without(names),
        )

    def drop(self, topic: str) -> None:
        """Remove the partitions of a topic."""
        for each in self._sets:
            each.drop(topic)
