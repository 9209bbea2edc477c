"""Sticky assignment for identical subscriptions: shares differ by at most one.

With P partitions and M members, each member gets P div M partitions, and P mod M members get one
more. First, members keep their partitions up to their share; earlier members get the larger shares.
Then the remaining partitions are assigned in turn, first to members that have less than the smaller
share.

Source: Kafka 4.3 AbstractStickyAssignor.ConstrainedAssignmentBuilder.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias

from plog.types import TopicPartition

Shares: TypeAlias = dict[str, list[TopicPartition]]
"""Partitions by member."""


class ConstrainedAssignment:
    """The computation of one assignment. Call `divide` once; afterwards, `moving` is valid."""

    def __init__(
        self,
        partition_counts: Mapping[str, int],
        owned: Mapping[str, Iterable[TopicPartition]],
        contested: Collection[TopicPartition],
    ) -> None:
        """Initialize; `owned` and `contested` are as in `OwnedPartitions`."""
        self._counts = partition_counts
        self._owned = owned
        self._contested = contested
        total = sum(partition_counts.values())
        self._small = total // len(owned)
        # Negating twice rounds the quotient up.
        self._large = -(-total // len(owned))
        self._large_shares_left = total % len(owned)
        self._shares: Shares = {member: [] for member in owned}
        self._below_small: list[str] = []
        self._at_small: list[str] = []
        self._given_up: dict[TopicPartition, str] = {}
        self.moving: dict[TopicPartition, str] = {}
        """The new owners of partitions that another member may still own."""

    def divide(self) -> Shares:
        """Return each member's share."""
        for member in self._owned:
            self._keep_owned(member)
        kept = {partition for share in self._shares.values() for partition in share}
        everything = (
            TopicPartition(topic, number)
            for topic, count in sorted(self._counts.items())
            for number in range(count)
        )
        self._deal_out([partition for partition in everything if partition not in kept])
        sizes = {len(share) for share in self._shares.values()}
        assert sizes <= {self._small, self._large}
        return self._shares

    def _keep_owned(self, member: str) -> None:
        owned = sorted(
            (partition for partition in self._owned[member] if partition not in self._contested),
            # Sort by partition number first, so that a member keeps partitions of all its topics.
            key=lambda partition: (partition.partition, partition.topic),
        )
        size = self._small
        if len(owned) < self._small:
            self._below_small.append(member)
        elif len(owned) >= self._large and self._large_shares_left:
            size = self._large
            self._large_shares_left -= 1
            # If no large share is left, members with a small share are complete.
            if not self._large_shares_left:
                self._at_small.clear()
        elif self._large_shares_left:
            self._at_small.append(member)
        self._shares[member] += owned[:size]
        # Record these partitions: another member gets them only after this member has revoked them.
        self._given_up.update((partition, member) for partition in owned[size:])

    def _deal_out(self, partitions: Iterable[TopicPartition]) -> None:
        below = sorted(self._below_small)
        # Of these members, only as many get another partition as there are large shares left.
        at_small = deque(sorted(self._at_small))
        turn = 0
        for partition in partitions:
            if below:
                turn %= len(below)
                member = below[turn]
                if self._give(partition, member) == self._small:
                    # The member now has a small share, and may get a large share.
                    del below[turn]
                    at_small.append(member)
                else:
                    turn += 1
            else:
                # The remaining partitions are exactly enough for the large shares.
                self._give(partition, at_small.popleft())

    def _give(self, partition: TopicPartition, member: str) -> int:
        """Add `partition` to the share of `member`; return the share's size."""
        share = self._shares[member]
        share.append(partition)
        # A member that gets back a partition that it gave up still owns that partition.
        if partition in self._contested or self._given_up.get(partition, member) != member:
            self.moving[partition] = member
        return len(share)
