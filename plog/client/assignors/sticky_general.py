"""Sticky assignment for different subscriptions: shares are as balanced as subscriptions allow.

First, members keep the partitions of topics to which they still subscribe. Then each unassigned
partition is given to the subscriber with the smallest share, in order of the topics' subscriber
counts. Finally, partitions move one by one from members that have at least two more partitions than
another subscriber of the topic, until there are no such members. Partitions with only one
subscriber do not move, and members that can own only such partitions are ignored. If the moves do
not improve the balance, they are undone.

Source: Kafka 4.3 AbstractStickyAssignor.GeneralAssignmentBuilder, PartitionMovements.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Mapping, Sequence

from plog.client.assignors.java_hash_order import HashOrder, partition_hash
from plog.client.assignors.sticky_constrained import Shares
from plog.client.assignors.sticky_owned_partitions import OrderedPartitions
from plog.types import TopicPartition


class GeneralAssignment:
    """The computation of one assignment. Call `divide` once."""

    def __init__(
        self,
        partition_counts: Mapping[str, int],
        wishes: Mapping[str, Sequence[str]],
        owned: Mapping[str, OrderedPartitions],
        previous: Mapping[TopicPartition, tuple[str, int]],
    ) -> None:
        """Initialize; `owned` and `previous` are as in `OwnedPartitions`.

        `wishes` contains the topics to which each member subscribes.
        """
        self._counts = partition_counts
        self._topics = {
            # As in Kafka's assignors, ignore topics that do not exist.
            member: [topic for topic in dict.fromkeys(topics) if topic in partition_counts]
            for member, topics in wishes.items()
        }
        self._readers: dict[str, set[str]] = {topic: set() for topic in partition_counts}
        for member, topics in self._topics.items():
            for topic in topics:
                self._readers[topic].add(member)
        self._previous = previous
        self._must_revoke = False
        self._shares = {member: self._still_wanted(member, owned[member]) for member in wishes}
        self._owner = {
            partition: member for member, share in self._shares.items() for partition in share
        }
        # The number of partitions that each member owns in each topic.
        self._held = {
            member: Counter(partition.topic for partition in share)
            for member, share in self._shares.items()
        }
        # Members sorted by the size of their share, then by id; the smallest share is first.
        self._order = sorted((len(share), member) for member, share in self._shares.items())
        self._movements = Movements()
        self._is_even: bool | None = None

    def divide(self) -> Shares:
        """Return each member's share."""
        everything = [
            TopicPartition(topic, number)
            # Topics with few subscribers leave few choices, so assign their partitions first.
            for topic in sorted(self._counts, key=lambda one: (len(self._readers[one]), one))
            for number in range(self._counts[topic])
        ]
        unassigned = [partition for partition in everything if partition not in self._owner]
        # As in Kafka, the first assignment of a group is never undone.
        begins_empty = self._order[-1][0] == 0
        for partition in unassigned:
            self._give_to_smallest_share(partition)
        # These members cannot take part in a move, so they would only slow down the search.
        set_aside = self._remove_fixed_members()
        before = {member: dict(share) for member, share in self._shares.items()}
        # First move partitions that had no owner; move owned partitions only if that is not enough.
        if not self._must_revoke:
            self._rebalance(unassigned)
        moved = self._rebalance(everything)
        # Undo moves that did not help: when a partition moves, its old owner loses the state that
        # it keeps for the partition.
        if moved and not begins_empty and _imbalance(self._shares) >= _imbalance(before):
            self._shares = before
        return {member: list(share) for member, share in (self._shares | set_aside).items()}

    def _still_wanted(self, member: str, owned: OrderedPartitions) -> OrderedPartitions:
        wanted = frozenset(self._topics[member])
        kept = {partition: None for partition in owned if partition.topic in wanted}
        self._must_revoke = self._must_revoke or len(kept) < len(owned)
        return kept

    def _give_to_smallest_share(self, partition: TopicPartition) -> None:
        self._add(partition, self._smallest_subscriber(partition.topic))

    def _smallest_subscriber(self, topic: str) -> str:
        readers = self._readers[topic]
        # The order is sorted by size, so the first subscriber has the smallest share.
        return next(member for _, member in self._order if member in readers)

    def _remove_fixed_members(self) -> dict[str, OrderedPartitions]:
        """Remove members that own all partitions that they can own, if no other member can."""
        aside = {}
        for member in list(self._shares):
            share = self._shares[member]
            if len(share) < self._most(member) or any(self._is_shared(x.topic) for x in share):
                continue
            self._order.remove((len(share), member))
            aside[member] = self._shares.pop(member)
        return aside

    def _is_shared(self, topic: str) -> bool:
        return len(self._readers[topic]) > 1

    def _most(self, member: str) -> int:
        """Return the number of partitions that `member` can own."""
        return sum(self._counts[topic] for topic in self._topics[member])

    def _rebalance(self, partitions: Sequence[TopicPartition]) -> bool:
        """Move partitions while that improves the balance; return whether a partition moved."""
        movable = [partition for partition in partitions if self._is_shared(partition.topic)]
        moved_any, moved = False, True
        while moved:
            moved = False
            for partition in movable:
                # Check this for each partition, because a single move may be enough.
                if self._is_balanced():
                    break
                if self._move_to_better(partition):
                    moved = moved_any = True
        return moved_any

    def _move_to_better(self, partition: TopicPartition) -> bool:
        """Move a partition to its previous owner, or to the subscriber with the smallest share.

        Another partition of the same topic may move instead of `partition`. No partition moves if
        that does not improve the balance. Returns whether a partition moved.
        """
        size = len(self._shares[self._owner[partition]])
        # Prefer the previous owner, which may still have state for the partition.
        before, _ = self._previous.get(partition, ("", 0))
        if (
            before in self._readers[partition.topic]
            and before in self._shares
            # A move cannot improve a difference of one.
            and size > len(self._shares[before]) + 1
        ):
            self._move(partition, before)
            return True
        poorest = self._smallest_subscriber(partition.topic)
        if size > len(self._shares[poorest]) + 1:
            self._move(partition, poorest)
            return True
        return False

    def _move(self, partition: TopicPartition, member: str) -> None:
        moving = self._movements.better_one(partition, self._owner[partition], member)
        old = self._owner[moving]
        self._movements.add(moving, old, member)
        self._drop(moving, old)
        self._add(moving, member)
        # The cached result is no longer valid.
        self._is_even = None

    def _add(self, partition: TopicPartition, member: str) -> None:
        share = self._shares[member]
        # The list is sorted, so bisection finds the entry.
        del self._order[bisect_left(self._order, (len(share), member))]
        share[partition] = None
        insort(self._order, (len(share), member))
        self._held[member][partition.topic] += 1
        self._owner[partition] = member

    def _drop(self, partition: TopicPartition, member: str) -> None:
        share = self._shares[member]
        del self._order[bisect_left(self._order, (len(share), member))]
        del share[partition]
        insort(self._order, (len(share), member))
        self._held[member][partition.topic] -= 1

    def _is_balanced(self) -> bool:
        """Return whether no move could improve the balance."""
        # The check visits all members, so cache its result until the next move.
        if self._is_even is None:
            least, most = self._order[0][0], self._order[-1][0]
            self._is_even = least >= most - 1 or not self._can_any_member_get_more()
        return self._is_even

    def _can_any_member_get_more(self) -> bool:
        # For each topic, the largest share among the members that own its partitions.
        largest_owner: Counter[str] = Counter()
        for member, share in self._shares.items():
            for topic, count in self._held[member].items():
                if count:
                    largest_owner[topic] = max(largest_owner[topic], len(share))
        return any(
            size + 1 < largest_owner[topic]
            for size, member in self._order
            if size != self._most(member)
            for topic in self._topics[member]
        )


class Movements:
    """A record of moves between members; it prevents two partitions from just swapping owners.

    The partitions of a topic are interchangeable. If a partition should move to a member from which
    another partition of the same topic has come, that other partition moves back instead.
    """

    def __init__(self) -> None:
        self._way: dict[TopicPartition, tuple[str, str]] = {}
        self._moved: dict[tuple[str, str, str], HashOrder[TopicPartition]] = {}

    def better_one(self, partition: TopicPartition, old: str, new: str) -> TopicPartition:
        """Return the partition to move from `old` to `new` in place of `partition`."""
        # Use the first owner, because `add` merges all moves of a partition into one move.
        first_owner = self._way[partition][0] if partition in self._way else old
        back = self._moved.get((partition.topic, new, first_owner))
        return back.first() if back else partition

    def add(self, partition: TopicPartition, old: str, new: str) -> None:
        """Record that `partition` has moved; a move back to the first owner removes the record."""
        topic = partition.topic
        if partition in self._way:
            # Record both moves as one move from the first owner to the last owner.
            old, middle = self._way.pop(partition)
            self._moved[topic, old, middle].remove(partition)
            if not self._moved[topic, old, middle]:
                del self._moved[topic, old, middle]
            # A partition that has returned to its first owner has not moved.
            if old == new:
                return
        self._way[partition] = (old, new)
        # With the order of Java's HashSet, the choice is the same as in Kafka.
        self._moved.setdefault((topic, old, new), HashOrder(partition_hash)).add(partition)


def _imbalance(shares: Mapping[str, OrderedPartitions]) -> int:
    """Return the sum of the differences in size between all pairs of shares."""
    sizes = sorted(len(share) for share in shares.values())
    # In sorted order, each size is added once for each smaller size, and subtracted once for each
    # larger size.
    return sum(size * (2 * place - len(sizes) + 1) for place, size in enumerate(sizes))
