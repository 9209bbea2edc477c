"""Sticky assignment for different subscriptions: shares are as balanced as these allow.

Members keep the partitions of topics that they still subscribe to. The unassigned partitions
follow, topics with the fewest subscribers first; each goes to the subscriber with the smallest
share. Then partitions move one by one from members that have at least two more than another
subscriber of the topic, until there are no such members. Partitions with a single subscriber, and
members without any other partitions, do not take part. If moving does not improve the balance, it
is undone.

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
        """Initialize with `owned` and `previous`, as in `OwnedPartitions`.

        `wishes` contains the topics to which each member subscribes.
        """
        self._counts = partition_counts
        self._topics = {
            # Ignore topics that do not exist, as Kafka's assignors do.
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
        # The number of partitions of each topic that a member owns.
        self._held = {
            member: Counter(partition.topic for partition in share)
            for member, share in self._shares.items()
        }
        # Members by the size of their share and their id: the smallest share comes first.
        self._order = sorted((len(share), member) for member, share in self._shares.items())
        self._movements = Movements()
        self._is_even: bool | None = None

    def divide(self) -> Shares:
        """Return each member's share."""
        everything = [
            TopicPartition(topic, number)
            # The topics with the fewest subscribers leave the fewest choices, so they come first.
            for topic in sorted(self._counts, key=lambda one: (len(self._readers[one]), one))
            for number in range(self._counts[topic])
        ]
        unassigned = [partition for partition in everything if partition not in self._owner]
        # As in Kafka, the first assignment of a group is never undone.
        begins_empty = self._order[-1][0] == 0
        for partition in unassigned:
            self._give_to_smallest_share(partition)
        # These members and partitions cannot take part in any move, so they would only slow down
        # the search.
        set_aside = self._remove_fixed_members()
        before = {member: dict(share) for member, share in self._shares.items()}
        # First move partitions that had no owner; move owned ones only if that is not enough.
        if not self._must_revoke:
            self._rebalance(unassigned)
        moved = self._rebalance(everything)
        # Undo moves that did not help: a member loses the state that it keeps for a partition when
        # the partition moves.
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
        # Sorted by size, so the first subscriber has the smallest share.
        return next(member for _, member in self._order if member in readers)

    def _remove_fixed_members(self) -> dict[str, OrderedPartitions]:
        """Remove members that own every partition they can own and do not share any of them."""
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
        """Return the number of partitions that `member` could own."""
        return sum(self._counts[topic] for topic in self._topics[member])

    def _rebalance(self, partitions: Sequence[TopicPartition]) -> bool:
        """Move partitions as long as that improves the balance; return whether any was moved."""
        movable = [partition for partition in partitions if self._is_shared(partition.topic)]
        moved_any, moved = False, True
        while moved:
            moved = False
            for partition in movable:
                # Checked for each partition, because a single move may be enough.
                if self._is_balanced():
                    break
                if self._move_to_better(partition):
                    moved = moved_any = True
        return moved_any

    def _move_to_better(self, partition: TopicPartition) -> bool:
        """Move `partition`, or another of its topic, to its previous owner or the smallest share.

        Moves nothing if that does not improve the balance.
        """
        size = len(self._shares[self._owner[partition]])
        # A previous owner may still have the state of the partition, so it is preferred.
        before, _ = self._previous.get(partition, ("", 0))
        if (
            before in self._readers[partition.topic]
            and before in self._shares
            # A difference of one cannot be improved by a move.
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
        # The order is sorted, so its entries are found by bisection.
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
        # Cached until the next move, since the check visits all members.
        if self._is_even is None:
            least, most = self._order[0][0], self._order[-1][0]
            self._is_even = least >= most - 1 or not self._can_any_member_get_more()
        return self._is_even

    def _can_any_member_get_more(self) -> bool:
        # The largest share among the owners of each topic's partitions.
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
    """The moves between members, so that two partitions of a topic do not simply swap owners.

    The partitions of a topic are interchangeable. If one of them came from the member to which
    another one would move, the first one moves back instead.
    """

    def __init__(self) -> None:
        self._way: dict[TopicPartition, tuple[str, str]] = {}
        self._moved: dict[tuple[str, str, str], HashOrder[TopicPartition]] = {}

    def better_one(self, partition: TopicPartition, old: str, new: str) -> TopicPartition:
        """Return the partition to move from `old` to `new` in place of `partition`."""
        # Compare with the first owner, because `add` merges all moves of a partition into one.
        first_owner = self._way[partition][0] if partition in self._way else old
        back = self._moved.get((partition.topic, new, first_owner))
        return back.first() if back else partition

    def add(self, partition: TopicPartition, old: str, new: str) -> None:
        """Record that `partition` has moved; a move back to the first owner removes the record."""
        topic = partition.topic
        if partition in self._way:
            # Record both moves as a single move from the first owner to the last.
            old, middle = self._way.pop(partition)
            self._moved[topic, old, middle].remove(partition)
            if not self._moved[topic, old, middle]:
                del self._moved[topic, old, middle]
            # The partition is back at its first owner, so it has not moved.
            if old == new:
                return
        self._way[partition] = (old, new)
        # HashSet order, so that the choice is that of Kafka's leader.
        self._moved.setdefault((topic, old, new), HashOrder(partition_hash)).add(partition)


def _imbalance(shares: Mapping[str, OrderedPartitions]) -> int:
    """Return the sum of the differences in size between all pairs of shares."""
    sizes = sorted(len(share) for share in shares.values())
    # In sorted order, a size is added once for each smaller one, subtracted for each larger one.
    return sum(size * (2 * place - len(sizes) + 1) for place, size in enumerate(sizes))
