"""The interface of assignors, and the subscriptions and assignments that group members exchange.

Each member sends its subscription once for each assignor that it supports. The group's leader
passes all subscriptions to the assignor that all members support and sends each member its
assignment. The byte formats are therefore the same as in all Kafka clients. An assignor belongs to
one member and may keep state. To write your own, derive a class with `name` and `assign` from
`Assignor`, and pass the class or an instance as ``partition.assignment.strategy``.

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
# The subscription got the generation in version 2 (KIP-792) and the rack in version 3 (KIP-881).
_SUBSCRIPTION_VERSION = 3
_ASSIGNMENT_VERSION = 3


class RebalanceProtocol(IntEnum):
    """How members treat their partitions before they rejoin."""

    EAGER = 0
    """Revoke all partitions."""
    COOPERATIVE = 1
    """Keep all partitions; revoke those missing from the assignment for the next rebalance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """A member's subscription, as sent to the leader.

    `owned_partitions` are the partitions that it owns while it joins, as of `generation_id`; eager
    members own none. The group instance id comes from the coordinator and is not encoded.
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
            # Sorted, so that the bytes are the same for the same subscription.
            topics=sorted(self.topics),
            user_data=self.user_data,
            owned_partitions=_by_topic(sorted(self.owned_partitions)),
            generation_id=self.generation_id,
            rack_id=self.rack_id,
        )
        return encode_subscription(message, _SUBSCRIPTION_VERSION)

    @classmethod
    def decode(cls, metadata: Buffer, group_instance_id: str | None = None) -> Subscription:
        """Return the subscription in bytes from any client and version. Raises WireError."""
        message = decode_subscription(metadata)
        return cls(
            topics=tuple(message.topics),
            # Copied, because a view would keep the whole response in memory.
            user_data=None if message.user_data is None else bytes(message.user_data),
            owned_partitions=_partitions(message.owned_partitions),
            generation_id=message.generation_id,
            rack_id=message.rack_id or None,
            # The instance id comes from the coordinator; the member's bytes do not contain it.
            group_instance_id=group_instance_id,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A member's partitions, with user data from the leader's assignor to the member's."""

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
        """Return the assignment in bytes from SyncGroup. Raises WireError."""
        message = decode_assignment(data)
        return cls(
            partitions=_partitions(message.assigned_partitions),
            # Copied for the same reason as in `Subscription.decode`.
            user_data=None if message.user_data is None else bytes(message.user_data),
        )


class Assignor(Protocol):
    """A strategy that assigns partitions to members; its `name` identifies it in the group.

    `protocols` lists the rebalance protocols that it supports.
    """

    name: str
    protocols: tuple[RebalanceProtocol, ...] = (RebalanceProtocol.EAGER,)

    def user_data(self, topics: Collection[str]) -> bytes | None:
        """Return data about this member for the leader's assignor, in addition to its topics."""
        return None

    def assign(
        self, partition_counts: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Assignment]:
        """Return an assignment for each member. Called only in the leader.

        Args:
            partition_counts: The number of partitions of each subscribed topic that exists.
            subscriptions: The subscription of each member, by member id.
        """
        ...

    def on_assignment(self, assignment: Assignment, generation_id: int) -> None:
        """Record the `assignment` that this member has received in a new generation."""
        return


def common_protocol(assignors: Sequence[Assignor]) -> RebalanceProtocol:
    """Return the highest protocol that all of `assignors` support.

    Raises ValueError if the assignors have none in common.
    """
    # All assignors must support it: members revoke partitions before an assignor is selected.
    common = set(RebalanceProtocol)
    for assignor in assignors:
        common &= set(assignor.protocols)
    if not common:
        names = ", ".join(assignor.name for assignor in assignors)
        raise ValueError(f"the assignors {names} have no rebalance protocol in common")
    # COOPERATIVE is preferred, since members keep their partitions while they join (KIP-429).
    return max(common)


def assigned(shares: Mapping[str, Iterable[TopicPartition]]) -> dict[str, Assignment]:
    """Convert each member's share to the form that `Assignor.assign` returns."""
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
