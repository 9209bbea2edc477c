"""The sticky rule where members want different topics: as even as their wishes allow.

Everybody keeps what it has and still wants. What is left goes, the topic with the fewest readers
first, each partition to whoever wants it and has the least. Then partitions are moved, one by one,
from members that have at least two more than somebody else who wants them, until that is nowhere
so; partitions that only one member wants, and members without any other, take no part in it. What
makes the whole not more even is taken back.

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
    """One assignment in the making; `divide` is called once."""

    def __init__(
        self,
        partition_counts: Mapping[str, int],
        wishes: Mapping[str, Sequence[str]],
        owned: Mapping[str, OrderedPartitions],
        previous: Mapping[TopicPartition, tuple[str, int]],
    ) -> None:
        """See `OwnedPartitions` for `owned` and `previous`; `wishes` are each member's topics."""
        self._counts = partition_counts
        self._topics = {
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
        # How many partitions of each topic a member has.
        self._held = {
            member: Counter(partition.topic for partition in share)
            for member, share in self._shares.items()
        }
        # Members by the size of their share and their id: who has the least comes first.
        self._order = sorted((len(share), member) for member, share in self._shares.items())
        self._movements = Movements()
        self._is_even: bool | None = None

    def divide(self) -> Shares:
        """Each member's share."""
        everything = [
            TopicPartition(topic, number)
            for topic in sorted(self._counts, key=lambda one: (len(self._readers[one]), one))
            for number in range(self._counts[topic])
        ]
        unassigned = [partition for partition in everything if partition not in self._owner]
        begins_empty = self._order[-1][0] == 0
        for partition in unassigned:
            self._give_to_the_poorest(partition)
        set_aside = self._set_aside_the_immovable()
        before = {member: dict(share) for member, share in self._shares.items()}
        # What nobody had may go anywhere first; what somebody has moves only if that is not enough.
        if not self._must_revoke:
            self._even_out(unassigned)
        moved = self._even_out(everything)
        if moved and not begins_empty and _unevenness(self._shares) >= _unevenness(before):
            self._shares = before
        return {member: list(share) for member, share in (self._shares | set_aside).items()}

    def _still_wanted(self, member: str, owned: OrderedPartitions) -> OrderedPartitions:
        wanted = frozenset(self._topics[member])
        kept = {partition: None for partition in owned if partition.topic in wanted}
        self._must_revoke = self._must_revoke or len(kept) < len(owned)
        return kept

    def _give_to_the_poorest(self, partition: TopicPartition) -> None:
        self._add(partition, self._poorest_reader(partition.topic))

    def _poorest_reader(self, topic: str) -> str:
        readers = self._readers[topic]
        return next(member for _, member in self._order if member in readers)

    def _set_aside_the_immovable(self) -> dict[str, OrderedPartitions]:
        """Take out the members that have all they want where nobody else wants any of it."""
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
        """How many partitions there are for `member`."""
        return sum(self._counts[topic] for topic in self._topics[member])

    def _even_out(self, partitions: Sequence[TopicPartition]) -> bool:
        """Move what can be moved to good effect, as long as there is something; was there?"""
        movable = [partition for partition in partitions if self._is_shared(partition.topic)]
        moved_any, moved = False, True
        while moved:
            moved = False
            for partition in movable:
                if self._even():
                    break
                if self._move_to_better(partition):
                    moved = moved_any = True
        return moved_any

    def _move_to_better(self, partition: TopicPartition) -> bool:
        """Move `partition`, or its like, to who had it before or who has the least, if better."""
        size = len(self._shares[self._owner[partition]])
        before, _ = self._previous.get(partition, ("", 0))
        if (
            before in self._readers[partition.topic]
            and before in self._shares
            and size > len(self._shares[before]) + 1
        ):
            self._move(partition, before)
            return True
        poorest = self._poorest_reader(partition.topic)
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
        self._is_even = None

    def _add(self, partition: TopicPartition, member: str) -> None:
        share = self._shares[member]
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

    def _even(self) -> bool:
        """Whether no move could make it more even."""
        if self._is_even is None:
            least, most = self._order[0][0], self._order[-1][0]
            self._is_even = least >= most - 1 or not self._somebody_could_get_more()
        return self._is_even

    def _somebody_could_get_more(self) -> bool:
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
    """What has moved between which members, so that none goes one way and its like back.

    Of a topic's partitions one is as good as another. If one of them has come from the member that
    another one would move to, that one goes back instead.
    """

    def __init__(self) -> None:
        self._way: dict[TopicPartition, tuple[str, str]] = {}
        self._moved: dict[tuple[str, str, str], HashOrder[TopicPartition]] = {}

    def better_one(self, partition: TopicPartition, old: str, new: str) -> TopicPartition:
        """The partition to move from `old` to `new` in the place of `partition`."""
        first_owner = self._way[partition][0] if partition in self._way else old
        back = self._moved.get((partition.topic, new, first_owner))
        return back.first() if back else partition

    def add(self, partition: TopicPartition, old: str, new: str) -> None:
        """`partition` has moved; one that is back where it began has not."""
        topic = partition.topic
        if partition in self._way:
            old, middle = self._way.pop(partition)
            self._moved[topic, old, middle].remove(partition)
            if not self._moved[topic, old, middle]:
                del self._moved[topic, old, middle]
            if old == new:
                return
        self._way[partition] = (old, new)
        self._moved.setdefault((topic, old, new), HashOrder(partition_hash)).add(partition)


def _unevenness(shares: Mapping[str, OrderedPartitions]) -> int:
    """The differences in size between any two shares, added up."""
    sizes = sorted(len(share) for share in shares.values())
    return sum(size * (2 * place - len(sizes) + 1) for place, size in enumerate(sizes))
