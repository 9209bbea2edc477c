"""Who had what before, as far as what members tell of it goes together.

Members tell what they own and in which generation. Two may claim one partition: one of them has
missed a rebalance, and the later generation is right; or both say the same generation, then nobody
is believed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from plog.client.assignors.assignor import NO_GENERATION
from plog.types import TopicPartition

OrderedPartitions: TypeAlias = dict[TopicPartition, None]
"""A set that keeps the order in which partitions were added."""


class OwnedPartitionsClaim(NamedTuple):
    """What a member says it has, and since when; generation -1 if it does not know."""

    partitions: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION


class OwnedPartitions:
    """The claims of all members, settled.

    owned: what each member keeps by right; every member is there, in the order they were given.
    contested: what several claim in the same generation.
    previous: who had a partition before its owner got it: (member, generation), from those that
        have missed a generation.
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
                if partition.partition < counts.get(partition.topic, 0):
                    self._settle(member, claim.generation, partition)
        last = max((claim.generation for claim in claims.values()), default=NO_GENERATION)
        self.previous = self._earlier_owners(claims, last)

    def _settle(self, member: str, generation: int, partition: TopicPartition) -> None:
        other = self._owner.get(partition)
        if other is None:
            self.owned[member][partition] = None
            self._owner[partition] = member
            return
        # Kafka compares with the generation in the fields here, whatever stands in the user data.
        other_generation = max(self._generations[other], NO_GENERATION)
        if generation < other_generation:
            return
        self.owned[other].pop(partition, None)
        self._owner[partition] = member
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
                if known is None or claim.generation > known[1]:
                    previous[partition] = (member, claim.generation)
        return previous
