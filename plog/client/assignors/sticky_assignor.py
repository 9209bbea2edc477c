"""The sticky assignors: balance the shares first, then move as few partitions as possible.

Two assignors share one algorithm. "sticky" is eager: members revoke all partitions before they
join, so they send their previous partitions as user data. "cooperative-sticky" uses the members'
owned partitions (KIP-429). A partition that must move is not assigned until its owner has revoked
it and the group has rebalanced again.

If all members subscribe to the same topics, shares differ by at most one (sticky_constrained.py).
Otherwise, shares are as balanced as the subscriptions allow (sticky_general.py).

Source: Kafka 4.3 AbstractStickyAssignor, StickyAssignor, CooperativeStickyAssignor. Racks are
ignored. Unlike Kafka's assignors, these assignors never assign a partition that no longer exists
after its topic was recreated with fewer partitions. They also never return a partition to a former
owner that is no longer subscribed to the topic.
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

# Version 1 added the generation (KIP-341).
_LAST_USER_DATA_VERSION = 1


class PreviousPartitions(Struct):
    """A topic's partitions in `StickyUserData`."""

    topic: str = field()
    partitions: list[int32] = field()


class StickyUserData(Message, versions="0-1"):
    """The previous partitions of a "sticky" member. The bytes do not contain the version."""

    previous_assignment: list[PreviousPartitions] = field()
    generation: int32 = field("1+", default=NO_GENERATION, ignorable=True)


class CooperativeUserData(Message, versions="0"):
    """The generation of a member's owned partitions, for leaders with old clients."""

    generation: int32 = field()


class StickyAssignor(Assignor):
    """Kafka's "sticky" assignor."""

    name = "sticky"

    def __init__(self) -> None:
        self._last: StickyUserData | None = None

    def user_data(self, topics: Collection[str]) -> bytes | None:
        """Return this member's last partitions, or None before the first assignment."""
        # An eager member does not own partitions while it joins, so it sends its last partitions as
        # user data (KIP-54).
        return None if self._last is None else self._last.encode(_LAST_USER_DATA_VERSION)

    def on_assignment(self, assignment: Assignment, generation_id: int) -> None:
        """See `Assignor`."""
        self._last = StickyUserData(
            previous_assignment=[
                PreviousPartitions(topic=topic, partitions=[one.partition for one in group])
                # `groupby` needs sorted input.
                for topic, group in groupby(sorted(assignment.partitions), attrgetter("topic"))
            ],
            generation=generation_id,
        )

    def assign(
        self, partition_counts: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Assignment]:
        """See `Assignor`."""
        claims = {member: _claim_in_user_data(one) for member, one in subscriptions.items()}
        shares, _ = _divide(partition_counts, subscriptions, claims)
        return assigned(shares)


class CooperativeStickyAssignor(Assignor):
    """Kafka's "cooperative-sticky" assignor; it also supports eager rebalances."""

    name = "cooperative-sticky"
    protocols = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)

    def __init__(self) -> None:
        self._generation = NO_GENERATION

    def user_data(self, topics: Collection[str]) -> bytes | None:
        """Return the generation of this member's last assignment."""
        # Leaders with version 1 of subscriptions do not read the subscription's generation field.
        return CooperativeUserData(generation=self._generation).encode(0)

    def on_assignment(self, assignment: Assignment, generation_id: int) -> None:
        """See `Assignor`."""
        self._generation = generation_id

    def assign(
        self, partition_counts: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Assignment]:
        """See `Assignor`; partitions that another owner must revoke first are not assigned."""
        claims = {member: _claim_in_fields(one) for member, one in subscriptions.items()}
        shares, moving = _divide(partition_counts, subscriptions, claims)
        # The general algorithm does not record which partitions change owners, so compute them.
        if moving is None:
            moving = _changing_hands(subscriptions, shares)
        # KIP-429: a cooperative member gets a partition only after its owner has revoked it.
        for partition, member in moving.items():
            if partition in shares[member]:
                shares[member].remove(partition)
        return assigned(shares)


def _divide(
    partition_counts: Mapping[str, int],
    subscriptions: Mapping[str, Subscription],
    claims: Mapping[str, OwnedPartitionsClaim],
) -> tuple[Shares, Mapping[TopicPartition, str] | None]:
    """Return the shares and, if the algorithm records them, the partitions that change owners."""
    wanted = wanted_topics(subscriptions.values())
    counts = {topic: partition_counts[topic] for topic in wanted if partition_counts.get(topic)}
    members = in_hash_order(subscriptions)
    claimed = {member: claims[member] for member in members}
    generations = {member: subscriptions[member].generation_id for member in members}
    settled = OwnedPartitions(claimed, generations, counts)
    wishes = {member: subscriptions[member].topics for member in members}
    if len({frozenset(topics) for topics in wishes.values()}) == 1:
        constrained = ConstrainedAssignment(counts, settled.owned, settled.contested)
        return constrained.divide(), constrained.moving
    return GeneralAssignment(counts, wishes, settled.owned, settled.previous).divide(), None


def _changing_hands(
    subscriptions: Mapping[str, Subscription], shares: Shares
) -> dict[TopicPartition, str]:
    """Return the new owners of partitions that another member still owns."""
    added: dict[TopicPartition, str] = {}
    revoked: set[TopicPartition] = set()
    for member, share in shares.items():
        owned = frozenset(subscriptions[member].owned_partitions)
        added.update((partition, member) for partition in share if partition not in owned)
        revoked |= owned.difference(share)
    return {partition: member for partition, member in added.items() if partition in revoked}


def _claim_in_user_data(subscription: Subscription) -> OwnedPartitionsClaim:
    data = subscription.user_data
    if not data:
        return OwnedPartitionsClaim()
    # The bytes do not contain the version. Try the newest first: data of version 0 is too short to
    # be decoded as version 1.
    for version in range(_LAST_USER_DATA_VERSION, -1, -1):
        try:
            user_data = StickyUserData.decode(data, version)
        except WireError:
            continue
        partitions = tuple(
            TopicPartition(topic.topic, number)
            for topic in user_data.previous_assignment
            for number in topic.partitions
        )
        return OwnedPartitionsClaim(partitions, user_data.generation)
    # Ignore unreadable data: at worst, partitions that the member does not claim move away from it.
    return OwnedPartitionsClaim()


def _claim_in_fields(subscription: Subscription) -> OwnedPartitionsClaim:
    generation = subscription.generation_id
    # Members with older clients send their generation only in the user data.
    if generation < 0 and subscription.user_data is not None:
        try:
            generation = CooperativeUserData.decode(subscription.user_data, 0).generation
        except WireError:
            generation = NO_GENERATION
    return OwnedPartitionsClaim(subscription.owned_partitions, max(generation, NO_GENERATION))
