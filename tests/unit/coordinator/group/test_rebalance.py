"""Rebalances: generations, assignments, late members and sessions."""

from __future__ import annotations

import pytest

from plog.error_codes import ErrorCode
from plog.errors import CoordinatorNotAvailable, KafkaError, NotCoordinator
from plog.wire.messages.sync_group import SyncGroupResponse
from tests.helpers.group.group_shard import REBALANCE_MS, SESSION_MS, GroupShard, subscription

# -- the first generation ---------------------------------------------------------------------


def test_first_generation_starts_immediately_without_a_delay() -> None:
    shard = GroupShard()
    asked = shard.join_new()
    shard.settle()
    assert asked.response().generation_id == 1


def test_empty_group_waits_for_more_members() -> None:
    shard = GroupShard(group_initial_rebalance_delay_ms=3000)
    asked = shard.join_new()
    shard.advance(2999)
    assert asked.is_waiting
    shard.advance(1)
    assert asked.response().generation_id == 1


def test_joining_member_extends_the_initial_delay() -> None:
    shard = GroupShard(group_initial_rebalance_delay_ms=3000)
    asked = [shard.join_new()]
    shard.advance(2000)
    asked.append(shard.join_new())
    shard.advance(3999)
    assert all(one.is_waiting for one in asked)
    shard.advance(1)
    assert [one.response().generation_id for one in asked] == [1, 1]


def test_initial_delay_is_limited_to_the_rebalance_timeout() -> None:
    shard = GroupShard(group_initial_rebalance_delay_ms=3000)
    asked = [shard.join_new(rebalance_ms=7000)]
    for _ in range(6):
        shard.advance(1000)
        asked.append(shard.join_new(rebalance_ms=7000))
    shard.advance(1000)
    assert [one.response().generation_id for one in asked] == [1] * 7


def test_initial_delay_applies_again_after_the_group_was_empty() -> None:
    shard = GroupShard(group_initial_rebalance_delay_ms=3000)
    asked = shard.join_new()
    shard.advance(3000)
    shard.leave_by_id(asked.response().member_id)
    assert shard.state == "Empty"
    asked = shard.join_new()
    shard.advance(2999)
    assert asked.is_waiting
    shard.advance(1)
    assert asked.response().generation_id == 3


# -- members that do not join -----------------------------------------------------------------


def test_heartbeat_response_requests_a_rejoin_during_a_rebalance() -> None:
    shard = GroupShard()
    [leader] = shard.stable()
    shard.join_new()
    assert shard.heartbeat(leader) == ErrorCode.REBALANCE_IN_PROGRESS


def test_member_that_joins_late_is_removed() -> None:
    shard = GroupShard()
    leader, late = shard.stable(2, session_ms=REBALANCE_MS * 2)
    waiting = shard.join(leader.member_id, session_ms=REBALANCE_MS * 2)
    shard.advance(REBALANCE_MS - 1)
    assert waiting.is_waiting
    shard.advance(1)
    assert waiting.response().generation_id == 2
    assert [one.member_id for one in waiting.response().members] == [leader.member_id]
    assert shard.heartbeat(late) == ErrorCode.UNKNOWN_MEMBER_ID
    assert any("JoinGroup did not arrive in time" in report for report in shard.reports)


def test_another_member_becomes_leader_when_the_leader_is_late() -> None:
    shard = GroupShard()
    leader, follower = shard.stable(2, session_ms=REBALANCE_MS * 2)
    changed = {"range": subscription("u")}
    waiting = shard.join(follower.member_id, protocols=changed, session_ms=REBALANCE_MS * 2)
    shard.advance(REBALANCE_MS)
    again = waiting.response()
    assert again.leader == follower.member_id
    assert shard.heartbeat(leader) == ErrorCode.UNKNOWN_MEMBER_ID


def test_live_member_that_does_not_rejoin_is_removed() -> None:
    shard = GroupShard()
    leader, follower = shard.stable(2)
    waiting = shard.join(leader.member_id)
    for _ in range(12):
        assert shard.heartbeat(follower) == ErrorCode.REBALANCE_IN_PROGRESS
        shard.advance(REBALANCE_MS / 12)
    assert waiting.response().generation_id == 2
    assert shard.heartbeat(follower) == ErrorCode.UNKNOWN_MEMBER_ID


def test_rebalance_completes_when_a_session_expires() -> None:
    shard = GroupShard()
    leader, _ = shard.stable(2)
    waiting = shard.join(leader.member_id)
    shard.advance(SESSION_MS)
    assert waiting.response().generation_id == 2


def test_waiting_member_needs_no_heartbeats() -> None:
    shard = GroupShard()
    leader, follower = shard.stable(2)
    waiting = shard.join(leader.member_id)
    for _ in range(6):
        shard.heartbeat(follower)
        shard.advance(SESSION_MS - 1)
    assert waiting.is_waiting
    assert leader.member_id in shard.group().members


def test_rebalance_waits_when_only_static_members_are_left_and_none_has_joined() -> None:
    shard = GroupShard()
    shard.stable(1, instance="i", session_ms=REBALANCE_MS * 4)
    newcomer = shard.join_new()
    shard.leave_by_id(newcomer_id := next(iter(set(shard.group().members) - _static(shard))))
    assert newcomer.code == ErrorCode.UNKNOWN_MEMBER_ID
    assert newcomer_id not in shard.group().members
    shard.advance(REBALANCE_MS * 2)
    assert shard.state == "PreparingRebalance"
    assert shard.group().generation_id == 1
    shard.advance(REBALANCE_MS * 2)
    assert shard.state == "Empty"


def _static(shard: GroupShard) -> set[str]:
    return {one.member_id for one in shard.group().members.values() if one.is_static}


# -- assignments ------------------------------------------------------------------------------


def test_followers_wait_for_the_leader() -> None:
    shard = GroupShard()
    ids = [shard.new_id() for _ in range(2)]
    asked = [shard.join(one) for one in ids]
    shard.settle()
    leader, follower = (one.response() for one in asked)
    waiting = shard.sync(follower)
    assert waiting.is_waiting
    answer = shard.sync(leader, {ids[0]: b"mine", ids[1]: b"yours"}).response()
    assert answer == SyncGroupResponse(
        protocol_type="consumer", protocol_name="range", assignment=b"mine"
    )
    assert waiting.response().assignment == b"yours"
    assert shard.state == "Stable"


def test_sync_after_the_leader_is_answered_immediately() -> None:
    shard = GroupShard()
    ids = [shard.new_id() for _ in range(2)]
    asked = [shard.join(one) for one in ids]
    shard.settle()
    leader, follower = (one.response() for one in asked)
    shard.sync(leader, {ids[1]: b"yours"})
    assert shard.sync(follower).response().assignment == b"yours"
    assert shard.sync(follower).response().assignment == b"yours"


def test_member_without_assignment_gets_empty_bytes() -> None:
    shard = GroupShard()
    ids = [shard.new_id() for _ in range(3)]
    asked = [shard.join(one) for one in ids]
    shard.settle()
    leader, *followers = (one.response() for one in asked)
    waiting = [shard.sync(one) for one in followers]
    shard.sync(leader, {ids[1]: b""})
    assert [one.response().assignment for one in waiting] == [b"", b""]
    assert shard.reload().state == "Stable"


def test_assignment_to_an_unknown_member_is_dropped() -> None:
    shard = GroupShard()
    asked = shard.join_new()
    shard.settle()
    shard.sync(asked.response(), {"stranger": b"x", asked.response().member_id: b"y"})
    assert {one.assignment for one in shard.group().members.values()} == {b"y"}


def test_assignment_is_durable_before_members_receive_it() -> None:
    shard = GroupShard()
    ids = [shard.new_id() for _ in range(2)]
    asked = [shard.join(one) for one in ids]
    shard.settle()
    leader, follower = (one.response() for one in asked)
    waiting = shard.sync(follower)
    shard.hold()
    told = shard.sync(leader, {ids[1]: b"yours"})
    assert told.is_waiting
    assert waiting.is_waiting
    assert shard.state == "CompletingRebalance"
    assert shard.heartbeat(follower) == 0
    shard.release()
    assert waiting.response().assignment == b"yours"
    loaded = shard.reload()
    assert loaded.sync(follower).response().assignment == b"yours"


@pytest.mark.parametrize("error", [NotCoordinator("moved"), CoordinatorNotAvailable("no disk")])
def test_assignment_that_cannot_be_written_is_discarded(error: KafkaError) -> None:
    shard = GroupShard()
    ids = [shard.new_id() for _ in range(2)]
    asked = [shard.join(one) for one in ids]
    shard.settle()
    leader, follower = (one.response() for one in asked)
    waiting = shard.sync(follower)
    shard.fail_next = error
    assert shard.sync(leader, {ids[1]: b"yours"}).code == error.code
    assert waiting.code == error.code
    assert shard.state == "PreparingRebalance"
    assert {one.assignment for one in shard.group().members.values()} == {b""}
    again = [shard.join(one) for one in ids]
    assert [one.response().generation_id for one in again] == [2, 2]
    shard.complete([one.response() for one in again])


def test_rebalance_supersedes_an_assignment_being_written() -> None:
    shard = GroupShard()
    [leader] = shard.stable()
    joined = shard.join(leader.member_id).response()
    shard.hold()
    told = shard.sync(joined, {leader.member_id: b"late"})
    newcomer = shard.join_new()
    shard.release()
    assert told.code == ErrorCode.REBALANCE_IN_PROGRESS
    assert shard.state == "PreparingRebalance"
    again = shard.join(leader.member_id)
    assert again.response().generation_id == newcomer.response().generation_id == 3
    assert shard.group().members[leader.member_id].assignment == b""


def test_failed_assignment_write_is_ignored_after_a_new_rebalance() -> None:
    shard = GroupShard()
    [leader] = shard.stable()
    joined = shard.join(leader.member_id).response()
    shard.hold()
    told = shard.sync(joined, {leader.member_id: b"late"})
    newcomer = shard.join_new()
    shard.release(NotCoordinator("moved"))
    assert told.code == ErrorCode.REBALANCE_IN_PROGRESS
    assert newcomer.is_waiting


def test_second_sync_of_the_leader_waits_for_the_first_write() -> None:
    shard = GroupShard()
    asked = shard.join_new()
    shard.settle()
    joined = asked.response()
    shard.hold()
    first = shard.sync(joined, {joined.member_id: b"1"})
    second = shard.sync(joined, {joined.member_id: b"1"})
    shard.release()
    assert first.code == ErrorCode.REBALANCE_IN_PROGRESS
    assert second.response().assignment == b"1"
    assert shard.state == "Stable"


def test_member_that_does_not_sync_in_time_is_removed() -> None:
    shard = GroupShard()
    ids = [shard.new_id(session_ms=REBALANCE_MS * 3) for _ in range(3)]
    asked = [shard.join(one, session_ms=REBALANCE_MS * 3) for one in ids]
    shard.settle()
    leader, follower, late = (one.response() for one in asked)
    shard.sync(leader, {})
    shard.sync(follower)
    shard.advance(REBALANCE_MS - 1)
    assert shard.state == "Stable"
    shard.advance(1)
    assert shard.state == "PreparingRebalance"
    assert set(shard.group().members) == set(ids[:2])
    assert shard.heartbeat(late) == ErrorCode.UNKNOWN_MEMBER_ID


def test_leader_that_does_not_sync_is_removed_and_others_rejoin() -> None:
    shard = GroupShard()
    ids = [shard.new_id(session_ms=REBALANCE_MS * 3) for _ in range(2)]
    asked = [shard.join(one, session_ms=REBALANCE_MS * 3) for one in ids]
    shard.settle()
    waiting = shard.sync(asked[1].response())
    shard.advance(REBALANCE_MS)
    assert waiting.code == ErrorCode.REBALANCE_IN_PROGRESS
    assert set(shard.group().members) == {ids[1]}
    assert shard.join(ids[1]).response().leader == ids[1]


def test_group_becomes_empty_when_no_member_syncs() -> None:
    shard = GroupShard()
    asked = shard.join_new(session_ms=REBALANCE_MS * 3)
    shard.settle()
    assert asked.response().generation_id == 1
    shard.advance(REBALANCE_MS)
    assert (shard.state, shard.group().generation_id) == ("Empty", 2)
    assert shard.timers.scheduled == {}


def test_no_member_is_late_after_all_have_synced() -> None:
    shard = GroupShard()
    [leader] = shard.stable(1, session_ms=REBALANCE_MS * 3)
    shard.advance(REBALANCE_MS * 2)
    assert shard.heartbeat(leader) == 0


def test_first_assignment_of_the_leader_applies() -> None:
    shard = GroupShard()
    ids = [shard.new_id() for _ in range(2)]
    asked = [shard.join(one) for one in ids]
    shard.settle()
    leader, follower = (one.response() for one in asked)
    shard.hold()
    shard.sync(leader, {ids[0]: b"0", ids[1]: b"1"}).leave()
    shard.settle()
    again = shard.join(leader.member_id).response()
    second = shard.sync(again, {ids[0]: b"1", ids[1]: b"0"})
    assert second.is_waiting
    shard.release()
    assert second.response().assignment == b"0"
    assert shard.sync(follower).response().assignment == b"1"
    assert shard.reload().sync(follower).response().assignment == b"1"


def test_leader_assigns_again_when_its_first_write_failed() -> None:
    shard = GroupShard()
    [leader] = shard.stable()
    shard.fail_next = CoordinatorNotAvailable("no disk")
    rejoined = shard.join(leader.member_id).response()
    assert shard.sync(rejoined, {leader.member_id: b"x"}).code == CoordinatorNotAvailable.code
    again = shard.join(leader.member_id).response()
    assert shard.sync(again, {leader.member_id: b"y"}).response().assignment == b"y"


def test_member_keeps_its_session_when_its_client_disconnects_during_sync() -> None:
    shard = GroupShard()
    ids = [shard.new_id() for _ in range(2)]
    asked = [shard.join(one) for one in ids]
    shard.settle()
    leader, follower = (one.response() for one in asked)
    shard.advance(SESSION_MS / 2)
    shard.heartbeat(leader)
    shard.sync(follower).leave()
    shard.settle()
    shard.advance(SESSION_MS / 2)
    shard.heartbeat(leader)
    assert len(shard.group().members) == 2
    shard.advance(SESSION_MS / 2)
    assert set(shard.group().members) == {ids[0]}


# -- sessions ---------------------------------------------------------------------------------


def test_member_is_removed_when_its_session_expires() -> None:
    shard = GroupShard()
    leader, follower = shard.stable(2)
    shard.advance(SESSION_MS - 1)
    assert shard.heartbeat(leader) == 0
    shard.advance(1)
    assert shard.heartbeat(leader) == ErrorCode.REBALANCE_IN_PROGRESS
    assert shard.heartbeat(follower) == ErrorCode.UNKNOWN_MEMBER_ID


def test_group_becomes_empty_when_the_last_session_expires() -> None:
    shard = GroupShard()
    shard.stable()
    shard.advance(SESSION_MS)
    assert (shard.state, shard.group().generation_id) == ("Empty", 2)
    loaded = shard.reload().group()
    assert (loaded.state.value, loaded.generation_id) == ("Empty", 2)
    assert loaded.empty_since == shard.ports.clock.now_ms()


def test_failed_write_of_an_empty_group_is_only_logged() -> None:
    shard = GroupShard()
    [leader] = shard.stable()
    shard.fail_next = CoordinatorNotAvailable("no disk")
    assert shard.leave_by_id(leader.member_id) == [0]
    assert shard.state == "Empty"
    assert any("cannot record that group" in report for report in shard.reports)
    assert shard.reload().state == "Stable"


def test_heartbeat_between_join_and_assignment_restarts_the_session() -> None:
    shard = GroupShard()
    asked = shard.join_new()
    shard.settle()
    for _ in range(4):
        shard.advance(SESSION_MS - 1)
        assert shard.heartbeat(asked.response()) == 0


def test_members_have_their_session_timeout_after_a_restart() -> None:
    shard = GroupShard()
    leader, follower = shard.stable(2)
    shard = shard.reload()
    shard.advance(SESSION_MS - 1)
    assert shard.heartbeat(leader) == 0
    assert shard.heartbeat(follower) == 0
    shard.advance(SESSION_MS - 1)
    assert shard.heartbeat(follower) == 0
    shard.advance(1)
    assert shard.heartbeat(follower) == ErrorCode.REBALANCE_IN_PROGRESS


def test_group_without_members_has_no_timers() -> None:
    shard = GroupShard()
    joined = shard.stable(3)
    shard.leave_by_id(*(one.member_id for one in joined))
    assert shard.state == "Empty"
    assert shard.timers.scheduled == {}


def test_timer_keys_do_not_collide() -> None:
    shard = GroupShard()
    one = shard.join_new(group="a", client_id="b c")
    two = shard.join_new(group="a b", client_id="c")
    shard.settle()
    assert one.code == two.code == 0
    assert len([key for key in shard.timers.scheduled if key.startswith("session")]) == 2
