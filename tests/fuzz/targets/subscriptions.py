"""Data that group members exchange: topics, subscriptions and assignments, or WireError."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from plog.client.assignors import Assignment, Subscription
from plog.types import TopicPartition
from plog.wire.internal.consumer_protocol import (
    ConsumerProtocolSubscription,
    OwnedPartitions,
    encode_subscription,
    subscribed_topics,
)
from plog.wire.primitives import WireError
from tests.fuzz.target import Target


def fuzz(data: bytes) -> None:
    """Decode the input as each kind, and encode and decode the result again."""
    _topics(data)
    with suppress(WireError):
        subscription = Subscription.decode(data)
        again = Subscription.decode(subscription.encode())
        assert sorted(subscription.topics) == list(again.topics)
        assert set(subscription.owned_partitions) == set(again.owned_partitions)
    with suppress(WireError):
        assignment = Assignment.decode(data)
        assert set(Assignment.decode(assignment.encode()).partitions) == set(assignment.partitions)


def _topics(data: bytes) -> None:
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
    yield Assignment(partitions=(TopicPartition("a", 0), TopicPartition("b", 1))).encode()
    yield b"\x7f\xff\0\0\0\1\0\1a\xff\xff\xff\xff"


TARGET = Target(name="subscriptions", fuzz=fuzz, seeds=_seeds, memory=(500, 50_000))
