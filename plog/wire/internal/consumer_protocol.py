"""What consumers of a group tell each other through the broker: their subscriptions.

A subscription is the metadata a member of protocol type "consumer" sends with JoinGroup: its
version as an int16, then the fields of that version. Each version only adds at the end, so whoever
needs the topics alone reads any version as version 0. Source: Kafka 4.0 ConsumerProtocol.

  1  partitions owned before the rebalance (KIP-429)
  2  the generation they were owned in (KIP-792)
  3  rack (KIP-881)
"""

from __future__ import annotations

from typing import Final

from plog.wire.primitives import Buffer, WireError
from plog.wire.schema import Message, Struct, field, int32

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
"""The protocol type of groups whose members consume topics."""

_VERSION_SIZE = 2


class OwnedPartitions(Struct):
    """Partitions of one topic."""

    topic: str = field()
    partitions: list[int32] = field()


class ConsumerProtocolSubscription(Message, versions="0-3"):
    """The topics a member wants."""

    topics: list[str] = field()
    user_data: bytes | None = field(default=None)
    owned_partitions: list[OwnedPartitions] = field("1+", ignorable=True)
    generation_id: int32 = field("2+", default=-1, ignorable=True)
    rack_id: str | None = field("3+", default=None, ignorable=True)


def encode_subscription(subscription: ConsumerProtocolSubscription, version: int) -> bytes:
    """The metadata for a JoinGroup.

    >>> encode_subscription(ConsumerProtocolSubscription(topics=["a"]), 0).hex(" ", -2)
    '0000 0000 0001 0001 61ff ffff ff'
    """
    return version.to_bytes(_VERSION_SIZE, "big") + subscription.encode(version)


def subscribed_topics(metadata: Buffer) -> frozenset[str]:
    """The topics in a member's metadata, whatever its version. Raises WireError.

    >>> subscription = ConsumerProtocolSubscription(topics=["a", "b"], generation_id=4)
    >>> sorted(subscribed_topics(encode_subscription(subscription, 3)))
    ['a', 'b']
    """
    version = int.from_bytes(metadata[:_VERSION_SIZE], "big", signed=True)
    if len(metadata) < _VERSION_SIZE or version < 0:
        raise WireError("a subscription begins with its version")
    return frozenset(ConsumerProtocolSubscription.decode(metadata[_VERSION_SIZE:], 0).topics)
