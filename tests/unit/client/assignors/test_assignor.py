"""Subscriptions and assignments in the byte format of Kafka's consumers."""

from __future__ import annotations

import pytest

from plog.client.assignors import (
    Assignment,
    Assignor,
    CooperativeStickyAssignor,
    RangeAssignor,
    RebalanceProtocol,
    Subscription,
    common_protocol,
)
from plog.types import TopicPartition
from plog.wire.primitives import WireError

# Written down by hand from the message definitions.
SUBSCRIPTION = (
    "0003 00000002 000161 000162 00000002 cafe"
    "00000001 000161 00000002 00000000 00000002"
    "00000007 000172"
)


def test_subscription_is_encoded_as_version_3() -> None:
    subscription = Subscription(
        topics=("b", "a"),
        user_data=b"\xca\xfe",
        owned_partitions=(TopicPartition("a", 2), TopicPartition("a", 0)),
        generation_id=7,
        rack_id="r",
    )
    assert subscription.encode() == bytes.fromhex(SUBSCRIPTION)


@pytest.mark.parametrize(
    ("data", "generation", "owned"),
    [
        ("0000 00000001 000161 ffffffff", -1, 0),
        ("0001 00000001 000161 ffffffff 00000001 000161 00000001 00000000", -1, 1),
        ("0002 00000001 000161 ffffffff 00000000 00000007", 7, 0),
        ("0009 00000001 000161 ffffffff 00000000 00000007 ffff 0102", 7, 0),
    ],
)
def test_subscription_of_any_version_is_decoded(data: str, generation: int, owned: int) -> None:
    subscription = Subscription.decode(bytes.fromhex(data), "i")
    assert subscription.topics == ("a",)
    assert subscription.generation_id == generation
    assert len(subscription.owned_partitions) == owned
    assert subscription.group_instance_id == "i"


@pytest.mark.parametrize("data", ["", "00", "ffff 00000000", "0003 00000001"])
def test_invalid_subscription_is_refused(data: str) -> None:
    with pytest.raises(WireError):
        Subscription.decode(bytes.fromhex(data))


def test_assignment_is_encoded_by_topic() -> None:
    partitions = (TopicPartition("b", 1), TopicPartition("a", 1), TopicPartition("a", 0))
    data = Assignment(partitions=partitions, user_data=b"x").encode()
    assert data == bytes.fromhex(
        "0003 00000002 000161 00000002 00000000 00000001 000162 00000001 00000001 00000001 78"
    )
    assert Assignment.decode(data) == Assignment(
        partitions=tuple(sorted(partitions)), user_data=b"x"
    )


def test_cooperative_protocol_requires_all_assignors() -> None:
    cooperative = CooperativeStickyAssignor()
    assert common_protocol([cooperative]) is RebalanceProtocol.COOPERATIVE
    assert common_protocol([RangeAssignor(), cooperative]) is RebalanceProtocol.EAGER

    class OnlyCooperative(RangeAssignor):
        name = "mine"
        protocols = (RebalanceProtocol.COOPERATIVE,)

    with pytest.raises(ValueError, match="range, mine"):
        common_protocol([RangeAssignor(), OnlyCooperative()])


def test_custom_assignor_needs_name_and_assign() -> None:
    class Greedy(Assignor):
        name = "greedy"

        def assign(self, partition_counts, subscriptions):  # type: ignore[no-untyped-def]
            counts = partition_counts.items()
            everything = [TopicPartition(topic, i) for topic, n in counts for i in range(n)]
            first, *others = sorted(subscriptions)
            return {first: Assignment(partitions=tuple(everything))} | {
                other: Assignment() for other in others
            }

    greedy = Greedy()
    assert greedy.user_data(["t"]) is None
    shares = greedy.assign({"t": 2}, {"a": Subscription(topics=("t",))})
    assert len(shares["a"].partitions) == 2
    greedy.on_assignment(shares["a"], 1)
