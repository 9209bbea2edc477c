"""The round-robin assignor: assign all partitions of all topics to the members in turn.

Members that are not subscribed to a topic are skipped. Therefore, if subscriptions differ, shares
may differ by more than one partition. Source: Kafka 4.3 RoundRobinAssignor.
"""

from __future__ import annotations

from collections.abc import Mapping

from plog.client.assignors.assignor import Assignment, Assignor, Subscription, assigned
from plog.client.assignors.range_assignor import in_order, wanted_topics
from plog.types import TopicPartition


class RoundRobinAssignor(Assignor):
    """Kafka's "roundrobin" assignor."""

    name = "roundrobin"

    def assign(
        self, partition_counts: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Assignment]:
        """Assign the partitions of all topics in turn; see `Assignor.assign`."""
        shares: dict[str, list[TopicPartition]] = {member: [] for member in subscriptions}
        wanted = {member: frozenset(one.topics) for member, one in subscriptions.items()}
        members = in_order(subscriptions)
        turn = 0
        # Every leader must compute the same assignment, so sort the topics.
        for topic in sorted(wanted_topics(subscriptions.values()) & set(partition_counts)):
            for number in range(partition_counts[topic]):
                # At least one member is subscribed to the topic, so the loop terminates.
                while topic not in wanted[members[turn]]:
                    turn = (turn + 1) % len(members)
                shares[members[turn]].append(TopicPartition(topic, number))
                turn = (turn + 1) % len(members)
        return assigned(shares)
