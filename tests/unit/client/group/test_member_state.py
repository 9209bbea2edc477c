"""Membership: the states of a group member and their transitions."""

from __future__ import annotations

from plog.client.group.member_state import Generation, Membership, MemberState


def test_join_and_sync_lead_to_a_stable_generation() -> None:
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


def test_first_rejoin_reason_is_kept() -> None:
    membership = stable()
    membership.ask_to_rejoin("x" * 300)
    membership.ask_to_rejoin("y")
    assert membership.rejoin_reason == "x" * 255
    assert membership.stable_generation is not None, "commits continue until it joins"


def test_rejoin_request_while_joining_requests_another_generation() -> None:
    membership = stable()
    membership.ask_to_rejoin("first")
    membership.begin_join()
    membership.joined(4, "m", "range")
    membership.ask_to_rejoin("second")
    membership.synced()
    assert membership.rejoin_reason == "second"


def test_reset_drops_the_generation_and_optionally_the_member_id() -> None:
    membership = stable()
    membership.reset("illegal", keeps_member_id=True)
    assert membership.generation == Generation("m")
    assert membership.needs_prepare
    assert membership.has_to_join
    assert membership.state is MemberState.UNJOINED
    membership.reset("unknown", keeps_member_id=False)
    assert membership.generation == Generation()


def test_failed_join_keeps_the_generation() -> None:
    membership = stable()
    membership.begin_join()
    membership.join_failed()
    assert membership.generation.is_member
    assert membership.stable_generation is None
    assert membership.has_to_join
