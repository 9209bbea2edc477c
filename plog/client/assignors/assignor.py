"""The interface of assignors, and the subscriptions and assignments that group members exchange.

Each member sends a subscription for each assignor that it supports. The group's leader passes all
subscriptions to an assignor that all members support, and sends each member its assignment. Members
may use different clients, so the byte formats are Kafka's. An assignor belongs to one member and
may keep state. To write your own, derive a class with `name` and `assign` from `Assignor`, and pass
the class or an instance in `assignors`.

Source: Kafka 4.3 ConsumerPartitionAssignor, ConsumerProtocol; KIP-429.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import groupby
from operator import attrgetter
from typing import Protocol

from plog.types import TopicPartition
from plog.wire.internal.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    OwnedPartitions,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from plog.wire.primitives import Buffer

NO_GENERATION = -1
# Version 2 of subscriptions added the generation (KIP-792), and version 3 the rack (KIP-881).
_SUBSCRIPTION_VERSION = 3
_ASSIGNMENT_VERSION = 3


class RebalanceProtocol(IntEnum):
    """What members do with their partitions before they rejoin."""

    EAGER = 0
    """Revoke all partitions."""
    COOPERATIVE = 1
    """Keep all partitions; revoke partitions that the new assignment lacks, and rejoin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """A member's subscription, as sent to the leader.

    `owned_partitions` are the partitions that the member owns while it joins, as of
    `generation_id`; eager members do not own any. The group instance id is not encoded; the
    coordinator provides it.
    """

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned_partitions: tuple[TopicPartition, ...] = ()
    generation_id: int = NO_GENERATION
    rack_id: str | None = None
    group_instance_id: str | None = None

    def encode(self) -> bytes:
        """Return the bytes for JoinGroup."""
        message = ConsumerProtocolSubscription(
            # The same subscription must always have the same bytes, so sort the topics.
            topics=sorted(self.topics),
            user_data=self.user_data,
            owned_partitions=_by_topic(sorted(self.owned_partitions)),
            generation_id=self.generation_id,
            rack_id=self.rack_id,
        )
        return encode_subscription(message, _SUBSCRIPTION_VERSION)

    @classmethod
    def decode(cls, metadata: Buffer, group_instance_id: str | None = None) -> Subscription:
        """Decode a subscription from any client, in any version. Raises WireError."""
        message = decode_subscription(metadata)
        return cls(
            topics=tuple(message.topics),
            # A view would keep the whole response in memory, so copy the data.
            user_data=None if message.user_data is None else bytes(message.user_data),
            owned_partitions=_partitions(message.owned_partitions),
            generation_id=message.generation_id,
            rack_id=message.rack_id or None,
            # The member's bytes do not contain the instance id.
            group_instance_id=group_instance_id,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A member's partitions, and user data from the leader's assignor for the member's assignor."""

    partitions: tuple[TopicPartition, ...] = ()
    user_data: bytes | None = None

    def encode(self) -> bytes:
        """Return the bytes for SyncGroup."""
        message = ConsumerProtocolAssignment(
            assigned_partitions=_by_topic(sorted(self.partitions)), user_data=self.user_data
        )
        return encode_assignment(message, _ASSIGNMENT_VERSION)

    @classmethod
    def decode(cls, data: Buffer) -> Assignment:
        """Decode an assignment from SyncGroup. Raises WireError."""
        message = decode_assignment(data)
        return cls(
            partitions=_partitions(message.assigned_partitions),
            # Copy the data for the same reason as in `Subscription.decode`.
            user_data=None if message.user_data is None else bytes(message.user_data),
        )


class Assignor(Protocol):
    """A strategy that assigns partitions to members.

    `name` identifies the strategy in the group, and `protocols` lists the rebalance protocols that
    it supports.
    """

    name: str
    protocols: tuple[RebalanceProtocol, ...] = (RebalanceProtocol.EAGER,)

    def user_data(self, topics: Collection[str]) -> bytes | None:
        """Return additional data about this member for the leader's assignor, or None."""
        return None

    def assign(
        self, partition_counts: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Assignment]:
        """Return an assignment for each member; only the group's leader calls this.

        Args:
            partition_counts: The number of partitions of each subscribed topic that exists.
            subscriptions: The members' subscriptions, by member id.
        """
        ...

    def on_assignment(self, assignment: Assignment, generation_id: int) -> None:
        """Record the assignment that this member has received in a new generation."""
        return


def common_protocol(assignors: Sequence[Assignor]) -> RebalanceProtocol:
    """Return the highest protocol that all of `assignors` support.

    Raises ValueError if the assignors have none in common.
    """
    # Members revoke partitions before the coordinator selects an assignor, so all assignors must
    # support the protocol.
    common = set(RebalanceProtocol)
    for assignor in assignors:
        common &= set(assignor.protocols)
    if not common:
        names = ", ".join(assignor.name for assignor in assignors)
        raise ValueError(f"the assignors {names} have no rebalance protocol in common")
    # Prefer COOPERATIVE: members keep their partitions while they join (KIP-429).
    return max(common)


def assigned(shares: Mapping[str, Iterable[TopicPartition]]) -> dict[str, Assignment]:
    """Convert the members' shares into the result of `Assignor.assign`."""
    return {member: Assignment(partitions=tuple(share)) for member, share in shares.items()}


def _by_topic(partitions: Iterable[TopicPartition]) -> list[OwnedPartitions]:
    return [
        OwnedPartitions(topic=topic, partitions=[one.partition for one in group])
        for topic, group in groupby(partitions, attrgetter("topic"))
    ]


def _partitions(topics: Iterable[OwnedPartitions]) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic.topic, number) for topic in topics for number in topic.partitions
    )
