"""The range assignor: divide each topic's partitions into consecutive ranges, one per subscriber.

Topics with the same number of partitions and the same subscribers are divided identically, so one
member gets all records with the same key (co-partitioning). Racks are ignored: the assignments are
the same as in Kafka if no member has a rack. Source: Kafka 4.3 RangeAssignor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from plog.client.assignors.assignor import Assignment, Assignor, Subscription, assigned
from plog.types import TopicPartition


class RangeAssignor(Assignor):
    """Kafka's "range" assignor."""

    name = "range"

    def assign(
        self, partition_counts: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Assignment]:
        """Divide each topic into ranges; see `Assignor.assign`."""
        shares: dict[str, list[TopicPartition]] = {member: [] for member in subscriptions}
        members = in_order(subscriptions)
        # Every leader must compute the same ranges, so sort the topics.
        for topic, count in sorted(partition_counts.items()):
            readers = [member for member in members if topic in subscriptions[member].topics]
            if not readers:
                continue
            each, more = divmod(count, len(readers))
            first = 0
            for position, member in enumerate(readers):
                # As in Kafka, the first members get one more partition each, until the remainder is
                # used up.
                end = first + each + (position < more)
                shares[member] += (TopicPartition(topic, number) for number in range(first, end))
                first = end
        return assigned(shares)


def in_order(subscriptions: Mapping[str, Subscription]) -> list[str]:
    """Return the static members sorted by instance id, then the other members by member id."""

    # With this order, a static member that returns with another member id keeps its place
    # (KIP-345).
    def place(member: str) -> tuple[bool, str]:
        instance = subscriptions[member].group_instance_id
        return (True, member) if instance is None else (False, instance)

    return sorted(subscriptions, key=place)


def wanted_topics(subscriptions: Iterable[Subscription]) -> set[str]:
    """Return all subscribed topics."""
    return {topic for subscription in subscriptions for topic in subscription.topics}
