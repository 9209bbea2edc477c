"""Range: each topic's partitions in as many runs as it has readers.

Topics with equally many partitions and the same readers are divided alike, so that a key's records
of both meet in one member (co-partitioning). Source: Kafka 4.3 RangeAssignor. Racks are not looked
at: an assignment is the one Kafka gives where no member names its rack.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from plog.client.assignors.assignor import Assignment, Assignor, Subscription, assigned
from plog.types import TopicPartition


class RangeAssignor(Assignor):
    """Kafka's "range"."""

    name = "range"

    def assign(
        self, partition_counts: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Assignment]:
        """See `Assignor`."""
        shares: dict[str, list[TopicPartition]] = {member: [] for member in subscriptions}
        members = in_order(subscriptions)
        for topic, count in sorted(partition_counts.items()):
            readers = [member for member in members if topic in subscriptions[member].topics]
            if not readers:
                continue
            each, more = divmod(count, len(readers))
            first = 0
            for position, member in enumerate(readers):
                end = first + each + (position < more)
                shares[member] += (TopicPartition(topic, number) for number in range(first, end))
                first = end
        return assigned(shares)


def in_order(subscriptions: Mapping[str, Subscription]) -> list[str]:
    """Static members by their instance ids, then the others by their member ids.

    So a static member keeps its place when it comes back under another member id (KIP-345).
    """

    def place(member: str) -> tuple[bool, str]:
        instance = subscriptions[member].group_instance_id
        return (True, member) if instance is None else (False, instance)

    return sorted(subscriptions, key=place)


def wanted_topics(subscriptions: Iterable[Subscription]) -> set[str]:
    """All topics somebody wants."""
    return {topic for subscription in subscriptions for topic in subscription.topics}
