"""Determine the owners of partitions from the members' claims.

Members report the partitions that they own and the generation of the assignment. If two members
claim the same partition, one of them has missed a rebalance, so the later generation takes
precedence. If both report the same generation, both claims are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from plog.client.assignors.assignor import NO_GENERATION
from plog.types import TopicPartition

OrderedPartitions: TypeAlias = dict[TopicPartition, None]
"""A set that keeps the order in which partitions were added."""


class OwnedPartitionsClaim(NamedTuple):
    """The partitions that a member claims to own; the generation is -1 if it is unknown."""

    partitions: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION


class OwnedPartitions:
    """The resolved claims of all members.

    owned: each member's partitions; all members are included, in the given order.
    contested: the partitions that several members claim in the same generation.
    previous: the latest earlier owner of a partition, and its generation, from claims that are
        older than the last generation.
    """

    def __init__(
        self,
        claims: Mapping[str, OwnedPartitionsClaim],
        generations: Mapping[str, int],
        counts: Mapping[str, int],
    ) -> None:
        self.owned: dict[str, OrderedPartitions] = {}
        self.contested: set[TopicPartition] = set()
        self._owner: dict[TopicPartition, str] = {}
        self._generations = generations
        for member, claim in claims.items():
            self.owned[member] = {}
            for partition in claim.partitions:
                # A recreated topic may have fewer partitions.
                if partition.partition < counts.get(partition.topic, 0):
                    self._settle(member, claim.generation, partition)
        # Claims of the last generation are current; older claims only show previous owners.
        last = max((claim.generation for claim in claims.values()), default=NO_GENERATION)
        self.previous = self._earlier_owners(claims, last)

    def _settle(self, member: str, generation: int, partition: TopicPartition) -> None:
        other = self._owner.get(partition)
        if other is None:
            self.owned[member][partition] = None
            self._owner[partition] = member
            return
        # As in Kafka, compare with the generation in the subscription's field, not the user data.
        other_generation = max(self._generations[other], NO_GENERATION)
        # If the other member has taken part in a later rebalance, this claim is outdated.
        if generation < other_generation:
            return
        # Remove the other claim; this claim is recorded below only if its generation is later.
        self.owned[other].pop(partition, None)
        self._owner[partition] = member
        # If two members claim a partition in the same generation, neither claim can be trusted.
        if generation == other_generation:
            self.contested.add(partition)
        else:
            self.owned[member][partition] = None

    @staticmethod
    def _earlier_owners(
        claims: Mapping[str, OwnedPartitionsClaim], last: int
    ) -> dict[TopicPartition, tuple[str, int]]:
        previous: dict[TopicPartition, tuple[str, int]] = {}
        for member, claim in claims.items():
            if claim.generation == last:
                continue
            for partition in claim.partitions:
                known = previous.get(partition)
                # Keep only the most recent of the earlier owners.
                if known is None or claim.generation > known[1]:
                    previous[partition] = (member, claim.generation)
        return previous
