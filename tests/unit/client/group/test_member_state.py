"""A member's place in its group, change by change."""

from __future__ import annotations

from plog.client.group.member_state import Generation, Membership, MemberState


def test_the_way_into_a_generation() -> None:
    changes: list[MemberState] = []
    membership = Membership("i", lambda: changes.append(membership.state))
    assert membership.has_to_join
    assert membership.stable_generation is None
    membership.begin_join()
    membership.given_member_id("m")
    assert membership.generation == Generation("m", -1, "i")
    assert not membership.generation.is_member
    membership.joined(3, "m", "range")
    assert membership.is_rebalancing
    assert not membership.has_to_join
    membership.synced()
    assert membership.stable_generation == Generation("m", 3, "i", "range")
    assert changes == [
        MemberState.PREPARING_REBALANCE,
        MemberState.COMPLETING_REBALANCE,
        MemberState.STABLE,
    ]


def stable() -> Membership:
    membership = Membership(None, lambda: None)
    membership.begin_join()
    membership.joined(3, "m", "range")
    membership.synced()
    membership.needs_prepare = False
    return membership


def test_the_first_reason_to_join_again_is_the_one_told() -> None:
    membership = stable()
    membership.ask_to_rejoin("x" * 300)
    membership.ask_to_rejoin("y")
    assert membership.rejoin_reason == "x" * 255
    assert membership.stable_generation is not None, "commits go on until it joins"


def test_a_reason_that_comes_while_joining_asks_for_one_more_generation() -> None:
    membership = stable()
    membership.ask_to_rejoin("first")
    membership.begin_join()
    membership.joined(4, "m", "range")
    membership.ask_to_rejoin("second")
    membership.synced()
    assert membership.rejoin_reason == "second"


def test_a_reset_loses_what_is_owned_and_perhaps_the_member_id() -> None:
    membership = stable()
    membership.reset("illegal", keeps_member_id=True)
    assert membership.generation == Generation("m")
    assert membership.needs_prepare
    assert membership.has_to_join
    assert membership.state is MemberState.UNJOINED
    membership.reset("unknown", keeps_member_id=False)
    assert membership.generation == Generation()


def test_a_join_that_fails_loses_nothing() -> None:
    membership = stable()
    membership.begin_join()
    membership.join_failed()
    assert membership.generation.is_member
    assert membership.stable_generation is None
    assert membership.has_to_join
