"""How simulated members divide partitions: what each tells, and what their leader makes of it.

Eager members give everything up before they join. Cooperative ones (KIP-429) go on with what they
have, and tell so; their leader leaves out whatever has to change hands, and who has lost something
joins again. Each assignment names the member it is for and the decision it is part of, so that one
that went astray shows. The broker looks into neither.
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
    """What one member gets in one generation, by one decision of a leader."""

    group: str
    generation: int
    decision: int
    member_id: str
    partitions: tuple[TopicPartition, ...]

    def encode(self) -> bytes:
        """As SyncGroup carries it."""
        fields = (self.group, self.generation, self.decision, self.member_id)
        return json.dumps([*fields, self.partitions]).encode()

    @classmethod
    def decode(cls, data: bytes) -> Assignment | None:
        """The other way; None for a member that was given nothing."""
        if not data:
            return None
        *fields, partitions = json.loads(data)
        return cls(*fields, tuple(TopicPartition(*one) for one in partitions))


def subscription(
    topics: Iterable[str], owned: Iterable[TopicPartition], generation: int, version: int
) -> bytes:
    """What a member tells with JoinGroup."""
    by_topic: dict[str, list[int]] = {}
    for topic, number in sorted(owned):
        by_topic.setdefault(topic, []).append(number)
    message = ConsumerProtocolSubscription(
        topics=sorted(topics),
        owned_partitions=[OwnedPartitions(topic=t, partitions=n) for t, n in by_topic.items()],
        generation_id=generation,
    )
    return encode_subscription(message, version)


def divide_anew(
    partitions: Sequence[TopicPartition], members: Sequence[JoinGroupResponseMember]
) -> dict[str, list[TopicPartition]]:
    """The eager way: one after the other."""
    shares: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
    for partition, member_id in zip(partitions, itertools.cycle(sorted(shares)), strict=False):
        shares[member_id].append(partition)
    return shares


def divide_cooperatively(
    partitions: Sequence[TopicPartition], members: Sequence[JoinGroupResponseMember]
) -> dict[str, list[TopicPartition]]:
    """Everybody keeps what it has, up to its share; what is taken away is nobody's for now."""
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
    """Who has what, of those that speak of the last generation: others are behind the times."""
    told = [(member.member_id, _decode(member.metadata)) for member in members]
    last = max(message.generation_id for _, message in told)
    return {
        TopicPartition(owned.topic, number): member_id
        for member_id, message in told
        if message.generation_id == last
        for owned in message.owned_partitions
        for number in owned.partitions
    }


def _decode(metadata: bytes) -> ConsumerProtocolSubscription:
    version = int.from_bytes(metadata[:_VERSION_SIZE], "big")
    assert version >= _FIRST_VERSION_WITH_GENERATION
    return ConsumerProtocolSubscription.decode(metadata[_VERSION_SIZE:], version)
