"""What a member of a group says it wants to consume: topics, or WireError."""

from __future__ import annotations

from collections.abc import Iterator

from plog.wire.internal.consumer_protocol import (
    ConsumerProtocolSubscription,
    OwnedPartitions,
    encode_subscription,
    subscribed_topics,
)
from plog.wire.primitives import WireError
from tests.fuzz.target import Target


def fuzz(data: bytes) -> None:
    """Read the topics, and read them again from what would be said of them."""
    try:
        topics = subscribed_topics(data)
    except WireError:
        return
    again = encode_subscription(ConsumerProtocolSubscription(topics=sorted(topics)), 0)
    assert subscribed_topics(again) == topics


def _seeds() -> Iterator[bytes]:
    for version in range(4):
        subscription = ConsumerProtocolSubscription(
            topics=["a", "b", "é"],
            user_data=b"\1\2",
            owned_partitions=[OwnedPartitions(topic="a", partitions=[0, 1])],
            generation_id=3,
            rack_id="r",
        )
        yield encode_subscription(subscription, version)
    yield b"\x7f\xff\0\0\0\1\0\1a\xff\xff\xff\xff"


TARGET = Target(name="subscriptions", fuzz=fuzz, seeds=_seeds, memory=(500, 50_000))
