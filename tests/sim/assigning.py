"""Subscriptions and assignments of simulated group members, eager and cooperative.

Eager members revoke all their partitions before they join. Cooperative members (KIP-429) keep
consuming and list their partitions in the subscription; their leader leaves out every partition
that has to move, and a member that lost a partition joins again. Each assignment contains its
member and the number of the leader's decision, so that a misdirected assignment is detected. The
broker parses neither.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from plog.types import TopicPartition
from plog.wire.internal.consumer_protocol import (
    ConsumerProtocolSubscription,
    OwnedPartitions,
    encode_subscription,
)
from plog.wire.messages.join_group import JoinGroupResponseMember

_VERSION_SIZE = 2
_FIRST_VERSION_WITH_GENERATION = 2
NO_GENERATION = -1


@dataclass(frozen=True, slots=True)
class Assignment:
    """The partitions of one member in one generation, as one decision of a leader."""

    group: str
    generation: int
    decision: int
    member_id: str
    partitions: tuple[TopicPartition, ...]

    def encode(self) -> bytes:
        """Return the bytes that SyncGroup carries."""
        fields = (self.group, self.generation, self.decision, self.member_id)
        return json.dumps([*fields, self.partitions]).encode()

    @classmethod
    def decode(cls, data: bytes) -> Assignment | None:
        """Return the decoded assignment; None for a member that was assigned nothing."""
        if not data:
            return None
        *fields, partitions = json.loads(data)
        return cls(*fields, tuple(TopicPartition(*one) for one in partitions))


def subscription(
    topics: Iterable[str], owned: Iterable[TopicPartition], generation: int, version: int
) -> bytes:
    """Return the metadata that a member sends in JoinGroup."""
    by_topic: dict[str, list[int]] = {}
    for topic, number in sorted(owned):
        by_topic.setdefault(topic, []).append(number)
    message = ConsumerProtocolSubscription(
        topics=sorted(topics),
        owned_partitions=[OwnedPartitions(topic=t, partitions=n) for t, n in by_topic.items()],
        generation_id=generation,
    )
    return encode_subscription(message, version)


def divide_eagerly(
    partitions: Sequence[TopicPartition], members: Sequence[JoinGroupResponseMember]
) -> dict[str, list[TopicPartition]]:
    """Assign all partitions round-robin, as an eager assignor does."""
    shares: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
    for partition, member_id in zip(partitions, itertools.cycle(sorted(shares)), strict=False):
        shares[member_id].append(partition)
    return shares


def divide_cooperatively(
    partitions: Sequence[TopicPartition], members: Sequence[JoinGroupResponseMember]
) -> dict[str, list[TopicPartition]]:
    """Keep each member's partitions up to its fair share; leave revoked partitions unassigned."""
    owners = _owners(members)
    most = -(-len(partitions) // len(members))
    shares: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
    for partition in partitions:
        owner = owners.get(partition)
        if owner is not None and len(shares[owner]) < most:
            shares[owner].append(partition)
    for partition in partitions:
        if partition not in owners:
            shares[min(sorted(shares), key=lambda one: len(shares[one]))].append(partition)
    return shares


def _owners(members: Sequence[JoinGroupResponseMember]) -> Mapping[TopicPartition, str]:
    """Return the owner of each partition, according to the members of the last generation only."""
    subscriptions = [(member.member_id, _decode(member.metadata)) for member in members]
    last = max(message.generation_id for _, message in subscriptions)
    return {
        TopicPartition(owned.topic, number): member_id
        for member_id, message in subscriptions
        if message.generation_id == last
        for owned in message.owned_partitions
        for number in owned.partitions
    }


def _decode(metadata: bytes) -> ConsumerProtocolSubscription:
    version = int.from_bytes(metadata[:_VERSION_SIZE], "big")
    assert version >= _FIRST_VERSION_WITH_GENERATION
    return ConsumerProtocolSubscription.decode(metadata[_VERSION_SIZE:], version)
