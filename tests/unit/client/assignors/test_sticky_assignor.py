"""The sticky assignors balance the shares and move as few partitions as possible.

tests/integration/other_clients/test_java_assignments.py compares them with Kafka's own.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from plog.client.assignors import (
    Assignment,
    CooperativeStickyAssignor,
    StickyAssignor,
    Subscription,
    assignors_from,
)
from plog.client.assignors.sticky_assignor import StickyUserData
from plog.types import TopicPartition
from tests.helpers.group.assignment_cases import Case, Group
from tests.unit.client.assignors.shares import divided, wants


def tp(text: str) -> TopicPartition:
    topic, _, number = text.rpartition("-")
    return TopicPartition(topic, int(number))


def had(generation: int, *partitions: str, topics: tuple[str, ...] = ("t",)) -> Subscription:
    """Return the subscription of a "sticky" member that had these partitions."""
    assignor = StickyAssignor()
    assignor.on_assignment(Assignment(partitions=tuple(map(tp, partitions))), generation)
    return Subscription(
        topics=topics, user_data=assignor.user_data(topics), generation_id=generation
    )


def owns(generation: int, *partitions: str, topics: tuple[str, ...] = ("t",)) -> Subscription:
    """Return the subscription of a cooperative member that owns these partitions."""
    return Subscription(
        topics=topics,
        owned_partitions=tuple(map(tp, partitions)),
        generation_id=generation,
    )


def test_new_members_share_evenly() -> None:
    shares = divided(StickyAssignor(), {"t": 5}, {"a": wants("t"), "b": wants("t")})
    assert shares == {"a": ["t-0", "t-2", "t-4"], "b": ["t-1", "t-3"]}


def test_new_member_gets_its_share_with_minimal_moves() -> None:
    members = {"a": had(1, "t-0", "t-1", "t-2"), "b": had(1, "t-3", "t-4", "t-5"), "c": wants("t")}
    shares = divided(StickyAssignor(), {"t": 6}, members)
    assert set(shares["a"]) < {"t-0", "t-1", "t-2"}
    assert set(shares["b"]) < {"t-3", "t-4", "t-5"}
    assert set(shares["c"]) == {"t-2", "t-5"}


def test_later_generation_wins_between_two_claims() -> None:
    members = {"a": had(1, "t-0", "t-1"), "b": had(3, "t-0", "t-1"), "c": had(3, "t-2", "t-3")}
    shares = divided(StickyAssignor(), {"t": 4}, members)
    assert shares == {"a": ["t-3"], "b": ["t-0", "t-1"], "c": ["t-2"]}


def test_user_data_of_version_0_is_used() -> None:
    data = StickyUserData.decode(had(5, "t-1", "t-3").user_data or b"", 1).encode(0)
    members = {"a": Subscription(topics=("t",), user_data=data), "b": wants("t")}
    shares = divided(StickyAssignor(), {"t": 4}, members)
    assert shares == {"a": ["t-1", "t-3"], "b": ["t-0", "t-2"]}


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x7f" * 9])
def test_unreadable_user_data_is_ignored(data: bytes) -> None:
    members = {"a": Subscription(topics=("t",), user_data=data), "b": wants("t")}
    assert len(divided(StickyAssignor(), {"t": 2}, members)["a"]) == 1


def test_user_data_bytes_match_kafka() -> None:
    assert had(7, "t-0", "t-2").user_data == bytes.fromhex(
        "00000001 000174 00000002 00000000 00000002 00000007"
    )
    cooperative = CooperativeStickyAssignor()
    assert cooperative.user_data(["t"]) == bytes.fromhex("ffffffff")
    cooperative.on_assignment(Assignment(), 7)
    assert cooperative.user_data(["t"]) == bytes.fromhex("00000007")
    assert StickyAssignor().user_data(["t"]) is None


def test_cooperative_assignment_omits_partitions_still_owned() -> None:
    members = {"a": owns(1, "t-0", "t-1", "t-2", "t-3"), "b": wants("t")}
    shares = divided(CooperativeStickyAssignor(), {"t": 4}, members)
    assert shares == {"a": ["t-0", "t-1"], "b": []}
    members = {"a": owns(2, "t-0", "t-1"), "b": owns(2)}
    shares = divided(CooperativeStickyAssignor(), {"t": 4}, members)
    assert shares == {"a": ["t-0", "t-1"], "b": ["t-2", "t-3"]}


def test_cooperative_assignment_omits_owned_partitions_of_different_topics() -> None:
    both = ("t", "u")
    members = {"a": owns(1, "t-0", "t-1", "t-2", "u-0", topics=both), "b": wants("t")}
    shares = divided(CooperativeStickyAssignor(), {"t": 3, "u": 1}, members)
    assert shares["b"] == []
    assert len(shares["a"]) == 2


def test_version_1_subscription_uses_the_generation_in_user_data() -> None:
    old = Subscription(
        topics=("t",), owned_partitions=(tp("t-0"),), user_data=bytes.fromhex("00000001")
    )
    members = {"a": old, "b": owns(2, "t-0")}
    shares = divided(CooperativeStickyAssignor(), {"t": 2}, members)
    assert shares["b"] == ["t-0"]


def test_missing_partition_is_not_assigned() -> None:
    members = {"a": had(1, "t-0", "t-7"), "b": had(1, "t-1")}
    assert divided(StickyAssignor(), {"t": 2}, members) == {"a": ["t-0"], "b": ["t-1"]}


def test_different_subscriptions_are_balanced_as_far_as_possible() -> None:
    members = {"a": wants("t"), "b": wants("t", "u"), "c": wants("t", "u", "v")}
    shares = divided(StickyAssignor(), {"t": 1, "u": 2, "v": 3}, members)
    assert shares["a"] == ["t-0"]
    assert sorted(shares["b"]) == ["u-0", "u-1"]
    assert sorted(shares["c"]) == ["v-0", "v-1", "v-2"]


def check(case: Case, shares: Mapping[str, Assignment]) -> None:
    given = [one for share in shares.values() for one in share.partitions]
    assert len(given) == len(set(given)), "two owners"
    for member, share in shares.items():
        assert {x.topic for x in share.partitions} <= set(case.subscriptions[member].topics)
    everything = {
        TopicPartition(t, i) for t, count in case.partition_counts.items() for i in range(count)
    }
    missing = everything - set(given)
    if case.assignor == "cooperative-sticky":
        owned = {x for one in case.subscriptions.values() for x in one.owned_partitions}
        assert missing <= owned
    else:
        assert missing == set()
    if len({frozenset(one.topics) for one in case.subscriptions.values()}) == 1 and not missing:
        sizes = [len(share.partitions) for share in shares.values()]
        assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
@pytest.mark.parametrize("seed", range(20))
def test_repeated_rebalances_stay_balanced_and_sticky(name: str, seed: int) -> None:
    group = Group(seed, name)
    for _ in range(15):
        case = group.meet()
        [assignor] = assignors_from([name])
        shares = assignor.assign(case.partition_counts, case.subscriptions)
        check(case, shares)
        group.divided(shares)


def test_hundreds_of_members_with_different_subscriptions_are_assigned() -> None:
    both = ("t", "u")
    members = {f"m{i}": wants(*(both if i % 2 else both[:1])) for i in range(300)}
    shares = StickyAssignor().assign({"t": 1000, "u": 1000}, members)
    assert sum(len(share.partitions) for share in shares.values()) == 2000
