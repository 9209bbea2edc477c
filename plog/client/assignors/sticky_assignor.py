"""Sticky: shares as even as can be, and of those the one that moves the fewest partitions.

Two assignors with one rule. "sticky" is eager: members give up everything before they join and so
tell in their user data what they had. "cooperative-sticky" goes on with what a member owns
(KIP-429); what has to change hands is left out of the assignment until its owner has given it up
and the group has met again.

Where all members want the same topics, even means that shares differ by one at most
(sticky_constrained.py); otherwise as even as their wishes allow (sticky_general.py).

Source: Kafka 4.3 AbstractStickyAssignor, StickyAssignor, CooperativeStickyAssignor. Racks are not
looked at. Unlike there, a partition that is gone (its topic was made anew, smaller) is nobody's,
and no partition goes back to a member that had it once and does not want its topic any more.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import groupby
from operator import attrgetter

from plog.client.assignors.assignor import (
    NO_GENERATION,
    Assignment,
    Assignor,
    RebalanceProtocol,
    Subscription,
    assigned,
)
from plog.client.assignors.java_hash_order import in_hash_order
from plog.client.assignors.range_assignor import wanted_topics
from plog.client.assignors.sticky_constrained import ConstrainedAssignment, Shares
from plog.client.assignors.sticky_general import GeneralAssignment
from plog.client.assignors.sticky_owned_partitions import OwnedPartitions, OwnedPartitionsClaim
from plog.types import TopicPartition
from plog.wire.primitives import WireError
from plog.wire.schema import Message, Struct, field, int32

_LAST_USER_DATA_VERSION = 1


class PreviousPartitions(Struct):
    """Partitions of one topic."""

    topic: str = field()
    partitions: list[int32] = field()


class StickyUserData(Message, versions="0-1"):
    """What a member of "sticky" had. The bytes do not tell their version: the first that fits."""

    previous_assignment: list[PreviousPartitions] = field()
    generation: int32 = field("1+", default=NO_GENERATION, ignorable=True)


class CooperativeUserData(Message, versions="0"):
    """The generation of a member's owned partitions, for leaders that read version 1 at most."""

    generation: int32 = field()


class StickyAssignor(Assignor):
    """Kafka's "sticky"."""

    name = "sticky"

    def __init__(self) -> None:
        self._last: StickyUserData | None = None

    def user_data(self, topics: Collection[str]) -> bytes | None:
        """What this member had last; None before it has had anything."""
        return None if self._last is None else self._last.encode(_LAST_USER_DATA_VERSION)

    def on_assignment(self, assignment: Assignment, generation_id: int) -> None:
        """See `Assignor`."""
        self._last = StickyUserData(
            previous_assignment=[
                PreviousPartitions(topic=topic, partitions=[one.partition for one in group])
                for topic, group in groupby(sorted(assignment.partitions), attrgetter("topic"))
            ],
            generation=generation_id,
        )

    def assign(
        self, partition_counts: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Assignment]:
        """See `Assignor`."""
        claims = {member: _told_in_user_data(one) for member, one in subscriptions.items()}
        shares, _ = _divide(partition_counts, subscriptions, claims)
        return assigned(shares)


class CooperativeStickyAssignor(Assignor):
    """Kafka's "cooperative-sticky"; it works eagerly too, beside others that know only that."""

    name = "cooperative-sticky"
    protocols = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)

    def __init__(self) -> None:
        self._generation = NO_GENERATION

    def user_data(self, topics: Collection[str]) -> bytes | None:
        """The generation this member was assigned something in last."""
        return CooperativeUserData(generation=self._generation).encode(0)

    def on_assignment(self, assignment: Assignment, generation_id: int) -> None:
        """See `Assignor`."""
        self._generation = generation_id

    def assign(
        self, partition_counts: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Assignment]:
        """See `Assignor`; a partition its owner has to give up first is in nobody's share."""
        claims = {member: _told_in_fields(one) for member, one in subscriptions.items()}
        shares, moving = _divide(partition_counts, subscriptions, claims)
        if moving is None:
            moving = _changing_hands(subscriptions, shares)
        for partition, member in moving.items():
            if partition in shares[member]:
                shares[member].remove(partition)
        return assigned(shares)


def _divide(
    partition_counts: Mapping[str, int],
    subscriptions: Mapping[str, Subscription],
    claims: Mapping[str, OwnedPartitionsClaim],
) -> tuple[Shares, Mapping[TopicPartition, str] | None]:
    """Each member's share, and what it gets from others, where the rule has that by the way."""
    wanted = wanted_topics(subscriptions.values())
    counts = {topic: partition_counts[topic] for topic in wanted if partition_counts.get(topic)}
    members = in_hash_order(subscriptions)
    told = {member: claims[member] for member in members}
    generations = {member: subscriptions[member].generation_id for member in members}
    settled = OwnedPartitions(told, generations, counts)
    wishes = {member: subscriptions[member].topics for member in members}
    if len({frozenset(topics) for topics in wishes.values()}) == 1:
        constrained = ConstrainedAssignment(counts, settled.owned, settled.contested)
        return constrained.divide(), constrained.moving
    return GeneralAssignment(counts, wishes, settled.owned, settled.previous).divide(), None


def _changing_hands(
    subscriptions: Mapping[str, Subscription], shares: Shares
) -> dict[TopicPartition, str]:
    """The partitions that go from one member, which still owns them, to another: to whom."""
    added: dict[TopicPartition, str] = {}
    revoked: set[TopicPartition] = set()
    for member, share in shares.items():
        owned = frozenset(subscriptions[member].owned_partitions)
        added.update((partition, member) for partition in share if partition not in owned)
        revoked |= owned.difference(share)
    return {partition: member for partition, member in added.items() if partition in revoked}


def _told_in_user_data(subscription: Subscription) -> OwnedPartitionsClaim:
    data = subscription.user_data
    if not data:
        return OwnedPartitionsClaim()
    for version in range(_LAST_USER_DATA_VERSION, -1, -1):
        try:
            told = StickyUserData.decode(data, version)
        except WireError:
            continue
        partitions = tuple(
            TopicPartition(topic.topic, number)
            for topic in told.previous_assignment
            for number in topic.partitions
        )
        return OwnedPartitionsClaim(partitions, told.generation)
    return (
        OwnedPartitionsClaim()
    )  # What cannot be read counts as nothing; the member loses no more than a move.


def _told_in_fields(subscription: Subscription) -> OwnedPartitionsClaim:
    generation = subscription.generation_id
    if generation < 0 and subscription.user_data is not None:
        try:
            generation = CooperativeUserData.decode(subscription.user_data, 0).generation
        except WireError:
            generation = NO_GENERATION
    return OwnedPartitionsClaim(subscription.owned_partitions, max(generation, NO_GENERATION))
