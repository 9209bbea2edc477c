"""Subscriptions and assignments, which the consumers in a group exchange through the broker.

A member with the protocol type "consumer" sends its subscription in the JoinGroup request. The
group's leader sends the assignments of all members in the SyncGroup request. Both formats start
with a version number, an int16, followed by the fields of that version.
Source: Kafka 4.3 ConsumerProtocol.

Versions of a subscription; an assignment has the same version numbers, but its fields never change:

  1  partitions owned before the rebalance (KIP-429)
  2  the generation they were owned in (KIP-792)
  3  rack (KIP-881)
"""

from __future__ import annotations

from typing import Final

from plog.wire.primitives import Buffer, WireError
from plog.wire.schema import Message, Struct, field, int32

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
"""The protocol type of consumer groups."""

_VERSION_SIZE = 2
_LAST_VERSION = 3


class OwnedPartitions(Struct):
    """Partitions of one topic."""

    topic: str = field()
    partitions: list[int32] = field()


class ConsumerProtocolSubscription(Message, versions="0-3"):
    """The topics that a member subscribes to."""

    topics: list[str] = field()
    # Only the assignor interprets it: the sticky assignor stores the previous assignment here.
    user_data: bytes | None = field(default=None)
    owned_partitions: list[OwnedPartitions] = field("1+", ignorable=True)
    generation_id: int32 = field("2+", default=-1, ignorable=True)
    rack_id: str | None = field("3+", default=None, ignorable=True)


class ConsumerProtocolAssignment(Message, versions="0-3"):
    """The partitions assigned to a member."""

    assigned_partitions: list[OwnedPartitions] = field()
    user_data: bytes | None = field(default=None)


def encode_subscription(subscription: ConsumerProtocolSubscription, version: int) -> bytes:
    """Encode the metadata for a JoinGroup request.

    >>> encode_subscription(ConsumerProtocolSubscription(topics=["a"]), 0).hex(" ", -2)
    '0000 0000 0001 0001 61ff ffff ff'
    """
    return version.to_bytes(_VERSION_SIZE, "big") + subscription.encode(version)


def subscribed_topics(metadata: Buffer) -> frozenset[str]:
    """Return the topics in a member's metadata of any version. Raises WireError.

    >>> subscription = ConsumerProtocolSubscription(topics=["a", "b"], generation_id=4)
    >>> sorted(subscribed_topics(encode_subscription(subscription, 3)))
    ['a', 'b']
    """
    _version(metadata, "a subscription")  # Raises WireError if the version is missing.
    # Newer versions only append fields, so the topics can be decoded as version 0.
    return frozenset(ConsumerProtocolSubscription.decode(metadata[_VERSION_SIZE:], 0).topics)


def decode_subscription(metadata: Buffer) -> ConsumerProtocolSubscription:
    """Decode a member's metadata. Raises WireError.

    >>> decode_subscription(bytes.fromhex("0001 00000001 000161 ffffffff")).topics
    ['a']
    """
    version = _version(metadata, "a subscription")
    body = metadata[_VERSION_SIZE:]
    try:
        return ConsumerProtocolSubscription.decode(body, version)
    except WireError:
        # Some clients send version 1 without the fields of version 1.
        return ConsumerProtocolSubscription.decode(body, 0)


def encode_assignment(assignment: ConsumerProtocolAssignment, version: int) -> bytes:
    """Encode a member's assignment for a SyncGroup request.

    >>> encode_assignment(ConsumerProtocolAssignment(), 0).hex(" ", -2)
    '0000 0000 0000 ffff ffff'
    """
    return version.to_bytes(_VERSION_SIZE, "big") + assignment.encode(version)


def decode_assignment(data: Buffer) -> ConsumerProtocolAssignment:
    """Decode a member's assignment. Raises WireError."""
    return ConsumerProtocolAssignment.decode(data[_VERSION_SIZE:], _version(data, "an assignment"))


def _version(data: Buffer, what: str) -> int:
    version = int.from_bytes(data[:_VERSION_SIZE], "big", signed=True)
    if len(data) < _VERSION_SIZE or version < 0:
        raise WireError(f"{what} is too short: its version is missing")
    # A later version only appends fields, which the decoder ignores.
    return min(version, _LAST_VERSION)
