"""What an assignor is, and what members of a group tell each other through the broker.

Each member sends its subscription, once for each assignor it knows; the group's leader hands all of
them to the assignor that all know, and sends every member its assignment. So a leader of ours must
read what members of other clients write, and the other way round. An assignor belongs to one member
and may remember what it was told. A rule of one's own is a class with `name` and `assign`: derive
it from `Assignor` for the rest, and give an instance, or the class, as
``partition.assignment.strategy``.

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
_SUBSCRIPTION_VERSION = 3
_ASSIGNMENT_VERSION = 3


class RebalanceProtocol(IntEnum):
    """What members do before they join anew."""

    EAGER = 0
    """Give up everything."""
    COOPERATIVE = 1
    """Keep all and give up what they are told to, which somebody else gets in a next round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """What a member tells its leader.

    `owned_partitions` are those it holds while it joins, as of `generation_id`; eager members hold
    none. The group instance id comes by the coordinator and is not part of the bytes.
    """

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned_partitions: tuple[TopicPartition, ...] = ()
    generation_id: int = NO_GENERATION
    rack_id: str | None = None
    group_instance_id: str | None = None

    def encode(self) -> bytes:
        """As JoinGroup carries it."""
        message = ConsumerProtocolSubscription(
            topics=sorted(self.topics),
            user_data=self.user_data,
            owned_partitions=_by_topic(sorted(self.owned_partitions)),
            generation_id=self.generation_id,
            rack_id=self.rack_id,
        )
        return encode_subscription(message, _SUBSCRIPTION_VERSION)

    @classmethod
    def decode(cls, metadata: Buffer, group_instance_id: str | None = None) -> Subscription:
        """The other way, from any client and version. Raises WireError."""
        message = decode_subscription(metadata)
        return cls(
            topics=tuple(message.topics),
            user_data=None if message.user_data is None else bytes(message.user_data),
            owned_partitions=_partitions(message.owned_partitions),
            generation_id=message.generation_id,
            rack_id=message.rack_id or None,
            group_instance_id=group_instance_id,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What a member gets, and what its leader's assignor lets its own assignor know besides."""

    partitions: tuple[TopicPartition, ...] = ()
    user_data: bytes | None = None

    def encode(self) -> bytes:
        """As SyncGroup carries it."""
        message = ConsumerProtocolAssignment(
            assigned_partitions=_by_topic(sorted(self.partitions)), user_data=self.user_data
        )
        return encode_assignment(message, _ASSIGNMENT_VERSION)

    @classmethod
    def decode(cls, data: Buffer) -> Assignment:
        """The other way. Raises WireError."""
        message = decode_assignment(data)
        return cls(
            partitions=_partitions(message.assigned_partitions),
            user_data=None if message.user_data is None else bytes(message.user_data),
        )


class Assignor(Protocol):
    """A way of dividing partitions; `name` is the same for all members that know it.

    `protocols` says which ways of rebalancing it works with.
    """

    name: str
    protocols: tuple[RebalanceProtocol, ...] = (RebalanceProtocol.EAGER,)

    def user_data(self, topics: Collection[str]) -> bytes | None:
        """What the leader's assignor is to know of this member besides its topics."""
        return None

    def assign(
        self, partition_counts: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Assignment]:
        """An assignment for each member; only its leader is asked.

        Args:
            partition_counts: How many partitions each topic has that somebody wants, of those that
                exist.
            subscriptions: What each member has told, by member id.
        """
        ...

    def on_assignment(self, assignment: Assignment, generation_id: int) -> None:
        """This member has got `assignment`, in a generation that has just begun."""
        return


def common_protocol(assignors: Sequence[Assignor]) -> RebalanceProtocol:
    """The highest protocol that all of `assignors` support: which one is used is not known before.

    Raises ValueError if there is none.
    """
    common = set(RebalanceProtocol)
    for assignor in assignors:
        common &= set(assignor.protocols)
    if not common:
        names = ", ".join(assignor.name for assignor in assignors)
        raise ValueError(f"no way of rebalancing is supported by all of {names}")
    return max(common)


def assigned(shares: Mapping[str, Iterable[TopicPartition]]) -> dict[str, Assignment]:
    """`shares` by member as what `Assignor.assign` returns."""
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
