"""The requests on the groups of a shard: sync, heartbeat, leave, describe, list, delete."""

from __future__ import annotations

from typing import Any

import pytest

from plog.error_codes import ErrorCode
from plog.errors import (
    FencedInstanceId,
    GroupIdNotFound,
    IllegalGeneration,
    KafkaError,
    NotCoordinator,
    RebalanceInProgress,
    UnknownMemberId,
)
from plog.wire.internal.group_records import GroupMetadataKey
from plog.wire.messages.join_group import JoinGroupResponse
from plog.wire.messages.leave_group import MemberIdentity
from tests.helpers.group_shard import REBALANCE_MS, SESSION_MS, GroupShard, subscription


def change(joined: JoinGroupResponse, **fields: Any) -> JoinGroupResponse:
    """The same member, mistaken in these fields."""
    other = JoinGroupResponse.decode(joined.encode(9), 9)
    for name, value in fields.items():
        setattr(other, name, value)
    return other


# -- sync and heartbeat -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, 0),
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group_id": "other"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "other"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": ""}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group_instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation_id": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation_id": 2}, ErrorCode.ILLEGAL_GENERATION),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": None, "protocol_name": None}, 0),
    ],
)
def test_a_sync_has_to_fit_the_group(fields: dict[str, Any], code: int) -> None:
    shard = GroupShard()
    [joined] = shard.stable()
    assert shard.sync(joined, **fields).code == code
    assert shard.state == "Stable"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, 0),
        ({"member_id": "other"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation_id": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation_id": -1}, ErrorCode.ILLEGAL_GENERATION),
    ],
)
def test_a_heartbeat_has_to_fit_the_group(fields: dict[str, Any], code: int) -> None:
    shard = GroupShard()
    [joined] = shard.stable()
    assert shard.heartbeat(change(joined, **fields)) == code


def test_heartbeats_of_groups_that_are_not_there() -> None:
    shard = GroupShard()
    [joined] = shard.stable()
    assert shard.heartbeat(joined, group="other") == ErrorCode.UNKNOWN_MEMBER_ID
    assert shard.heartbeat(joined, group="") == ErrorCode.INVALID_GROUP_ID
    shard.leave_by_id(joined.member_id)
    assert shard.heartbeat(joined) == ErrorCode.UNKNOWN_MEMBER_ID
    assert shard.sync(joined).code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_pending_id_is_no_member() -> None:
    shard = GroupShard()
    [joined] = shard.stable()
    pending = change(joined, member_id=shard.new_id())
    assert shard.heartbeat(pending) == ErrorCode.UNKNOWN_MEMBER_ID
    assert shard.sync(pending).code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_sync_in_a_rebalance_is_refused() -> None:
    shard = GroupShard()
    leader, follower = shard.stable(2)
    shard.join(leader.member_id)
    assert shard.sync(follower).code == ErrorCode.REBALANCE_IN_PROGRESS


def test_of_two_syncs_of_one_member_the_second_is_answered() -> None:
    shard = GroupShard()
    asked = [shard.join(one) for one in [shard.new_id() for _ in range(2)]]
    shard.settle()
    leader, follower = (one.response() for one in asked)
    first = shard.sync(follower)
    second = shard.sync(follower)
    assert first.code == ErrorCode.REBALANCE_IN_PROGRESS
    first.later.cancel()
    shard.settle()
    shard.sync(leader, {follower.member_id: b"x"})
    assert second.response().assignment == b"x"


# -- leaving ----------------------------------------------------------------------------------


def test_a_member_that_leaves_begins_a_rebalance() -> None:
    shard = GroupShard()
    leader, follower = shard.stable(2)
    assert shard.leave_by_id(leader.member_id) == [0]
    assert shard.heartbeat(leader) == ErrorCode.UNKNOWN_MEMBER_ID
    assert shard.heartbeat(follower) == ErrorCode.REBALANCE_IN_PROGRESS
    assert shard.join(follower.member_id).response().leader == follower.member_id


def test_the_last_one_to_leave_makes_the_group_empty() -> None:
    shard = GroupShard()
    [joined] = shard.stable()
    shard.leave_by_id(joined.member_id)
    assert (shard.state, shard.group().generation_id) == ("Empty", 2)
    assert shard.reload().state == "Empty"
    assert shard.group().protocol_type == "consumer"


def test_many_leave_at_once_each_with_its_own_outcome() -> None:
    shard = GroupShard()
    first, second, third = shard.stable(3)
    pending = shard.new_id()
    gone = [first.member_id, "stranger", pending, second.member_id, second.member_id]
    assert shard.leave_by_id(*gone) == [0, 25, 0, 0, 25]
    assert set(shard.group().members) == {third.member_id}
    assert shard.group().pending_joins == set()
    assert shard.join(third.member_id).response().generation_id == 2


def test_who_leaves_hears_what_it_said() -> None:
    shard = GroupShard()
    [joined] = shard.stable(1, instance="i")
    answer = shard.leave(MemberIdentity(member_id=joined.member_id, group_instance_id="i0"))
    [member] = answer.members
    assert (member.member_id, member.group_instance_id) == (joined.member_id, "i0")
    assert (answer.error_code, member.error_code) == (0, 0)


def test_leaving_a_group_that_is_not_there() -> None:
    shard = GroupShard()
    assert shard.leave_by_id("a", "b") == [ErrorCode.UNKNOWN_MEMBER_ID] * 2
    assert shard.write(lambda: shard.groups.leave("", [])).code == ErrorCode.INVALID_GROUP_ID
    assert shard.leave_by_id() == []


def test_a_stranger_that_leaves_disturbs_nobody() -> None:
    shard = GroupShard()
    [joined] = shard.stable()
    shard.leave_by_id("stranger")
    shard.leave(MemberIdentity(member_id=joined.member_id, group_instance_id="i"))
    assert shard.heartbeat(joined) == 0


def test_a_pending_member_that_leaves_disturbs_nobody() -> None:
    shard = GroupShard()
    [joined] = shard.stable()
    assert shard.leave_by_id(shard.new_id()) == [0]
    assert shard.heartbeat(joined) == 0
    assert shard.group().pending_joins == set()


def test_a_rebalance_goes_on_when_who_it_waits_for_leaves() -> None:
    shard = GroupShard()
    leader, follower = shard.stable(2)
    pending = shard.new_id()
    waiting = shard.join(leader.member_id)
    shard.leave_by_id(follower.member_id)
    assert waiting.is_waiting
    shard.leave_by_id(pending)
    assert waiting.response().generation_id == 2


@pytest.mark.parametrize("phase", ["join", "sync"])
def test_a_member_that_is_taken_out_while_it_waits_hears_so(phase: str) -> None:
    shard = GroupShard()
    leader, follower = shard.stable(2)
    waiting: Any = shard.join(follower.member_id, protocols={"range": subscription("u")})
    if phase == "sync":
        shard.join(leader.member_id)
        waiting = shard.sync(waiting.response())
    assert waiting.is_waiting
    assert shard.leave_by_id(follower.member_id) == [0]
    assert waiting.code == ErrorCode.UNKNOWN_MEMBER_ID


# -- offsets ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({}, None),
        ({"member_id": "x"}, UnknownMemberId),
        ({"generation_id": 9}, IllegalGeneration),
        ({"group_instance_id": "i1", "member_id": "x"}, FencedInstanceId),
    ],
)
def test_a_commit_has_to_come_from_a_member(
    fields: dict[str, Any], error: type[KafkaError] | None
) -> None:
    shard = GroupShard()
    _, joined = shard.stable(2, instance="i")
    told = {"member_id": joined.member_id, "group_instance_id": None, "generation_id": 1} | fields
    if error is None:
        shard.groups.validate_offset_commit("g", **told)
    else:
        with pytest.raises(error):
            shard.groups.validate_offset_commit("g", **told)


def test_a_commit_between_join_and_assignment_is_refused() -> None:
    shard = GroupShard()
    asked = shard.join_new()
    shard.settle()
    joined = asked.response()
    with pytest.raises(RebalanceInProgress):
        shard.groups.validate_offset_commit("g", joined.member_id, None, joined.generation_id)


def test_a_member_that_commits_is_alive() -> None:
    shard = GroupShard()
    [joined] = shard.stable()
    for _ in range(4):
        shard.advance(SESSION_MS - 1)
        shard.groups.validate_offset_commit("g", joined.member_id, None, 1)
    assert shard.heartbeat(joined) == 0


def test_a_member_that_commits_in_a_rebalance_is_alive() -> None:
    shard = GroupShard()
    leader, follower = shard.stable(2)
    shard.join(leader.member_id)
    for _ in range(3):
        shard.advance(SESSION_MS - 1)
        shard.groups.validate_offset_commit("g", follower.member_id, None, 1)
    assert shard.heartbeat(follower) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_group_that_only_has_offsets() -> None:
    shard = GroupShard()
    group = shard.groups.get_or_create_simple("g")
    assert shard.groups.get_or_create_simple("g") is group
    assert (group.is_empty, group.protocol_type) == (True, None)
    assert shard.records == []
    shard.groups.validate_offset_commit("g", "", None, -1)
    [leader] = shard.stable()
    assert leader.generation_id == 1


# -- describing and listing -------------------------------------------------------------------


def test_a_stable_group_is_described_in_full() -> None:
    shard = GroupShard()
    leader, follower = shard.stable(2, instance="i", client_id="me")
    described = shard.groups.describe("g")
    assert (described.group_id, described.group_state) == ("g", "Stable")
    assert (described.protocol_type, described.protocol_data) == ("consumer", "range")
    first, second = described.members
    assert (first.member_id, first.group_instance_id) == (leader.member_id, "i0")
    assert (second.member_id, second.group_instance_id) == (follower.member_id, "i1")
    assert (first.client_id, first.client_host) == ("me", "/192.0.2.77")
    assert (first.member_metadata, first.member_assignment) == (subscription("t"), b"0")


def test_in_a_rebalance_no_protocol_is_told() -> None:
    shard = GroupShard()
    leader, _ = shard.stable(2)
    shard.join(leader.member_id)
    described = shard.groups.describe("g")
    assert (described.group_state, described.protocol_data) == ("PreparingRebalance", "")
    assert [one.member_metadata for one in described.members] == [b"", b""]


def test_a_group_that_only_has_offsets_is_described() -> None:
    shard = GroupShard()
    shard.groups.get_or_create_simple("g")
    described = shard.groups.describe("g")
    assert (described.group_state, described.protocol_type, described.members) == ("Empty", "", [])


def test_a_group_nobody_knows_is_not_described() -> None:
    with pytest.raises(GroupIdNotFound):
        GroupShard().groups.describe("g")


def test_every_group_is_there() -> None:
    shard = GroupShard()
    shard.stable()
    shard.groups.get_or_create_simple("simple")
    assert [group.group_id for group in shard.groups] == ["g", "simple"]
    assert shard.groups.group_ids() == ["g", "simple"]


# -- deleting ---------------------------------------------------------------------------------


def test_a_group_without_members_is_deleted() -> None:
    shard = GroupShard()
    shard.stable()
    shard.groups.get_or_create_simple("simple")
    assert shard.write(lambda: shard.groups.delete("g")).code == ErrorCode.NON_EMPTY_GROUP
    assert shard.write(lambda: shard.groups.delete("nobody")).code == ErrorCode.GROUP_ID_NOT_FOUND
    shard.write(lambda: shard.groups.delete("simple"))
    assert shard.records[-1].key == GroupMetadataKey(group="simple")
    assert shard.records[-1].value is None
    assert shard.groups.group_ids() == ["g"]


def test_a_deleted_group_does_not_come_back() -> None:
    shard = GroupShard()
    [joined] = shard.stable()
    shard.leave_by_id(joined.member_id)
    shard.write(lambda: shard.groups.delete("g"))
    assert shard.reload().groups.group_ids() == []
    [joined] = shard.stable()
    assert joined.generation_id == 1
    assert shard.reload().group().generation_id == 1


def test_who_was_about_to_join_a_deleted_group_joins_anew() -> None:
    shard = GroupShard()
    member_id = shard.new_id()
    shard.write(lambda: shard.groups.delete("g"))
    assert shard.timers.scheduled == {}
    assert shard.join(member_id).code == ErrorCode.UNKNOWN_MEMBER_ID
    assert shard.join().code == ErrorCode.MEMBER_ID_REQUIRED


def test_an_unused_group_is_let_go_unless_somebody_is_about_to_join() -> None:
    shard = GroupShard()
    [joined] = shard.stable()
    assert shard.groups.tombstones_if_unused("g") == []
    shard.leave_by_id(joined.member_id)
    pending = shard.new_id()
    assert shard.groups.tombstones_if_unused("g") == []
    shard.leave_by_id(pending)
    [tombstone] = shard.groups.tombstones_if_unused("g")
    assert (tombstone.key, tombstone.value) == (GroupMetadataKey(group="g"), None)
    assert shard.groups.tombstones_if_unused("nobody") == []


# -- loading and unloading --------------------------------------------------------------------


def test_a_later_record_replaces_an_earlier_one() -> None:
    shard = GroupShard()
    joined = shard.stable(2)
    shard.rebalance(joined)
    loaded = shard.reload()
    assert loaded.group().generation_id == 2
    assert loaded.groups.group_ids() == ["g"]


def test_members_go_on_after_a_restart() -> None:
    shard = GroupShard()
    joined = shard.stable(3)
    shard = shard.reload()
    assert shard.state == "Stable"
    assert [shard.heartbeat(one) for one in joined] == [0, 0, 0]
    assert [shard.sync(one).response().assignment for one in joined] == [b"0", b"1", b"2"]
    shard.rebalance(joined)


@pytest.mark.parametrize("phase", ["join", "sync", "written"])
def test_who_waits_when_the_shard_is_unloaded_is_told_to_look_elsewhere(phase: str) -> None:
    shard = GroupShard()
    leader, follower = shard.stable(2)
    waiting: list[Any] = [shard.join(leader.member_id)]
    if phase != "join":
        joined = shard.join(follower.member_id).response()
        again = waiting[0].response()
        waiting = [shard.sync(joined)]
        if phase == "written":
            shard.hold()
            shard.sync(again)
    error = NotCoordinator("another broker leads now")
    shard.groups.on_unloaded(error)
    assert [one.error for one in waiting] == [error]
    assert shard.groups.group_ids() == []
    assert shard.timers.scheduled == {}
    shard.release(NotCoordinator("unloaded"))  # Too late to matter to anybody.
    shard.advance(REBALANCE_MS)


def test_a_tombstone_may_come_twice() -> None:
    shard = GroupShard()
    shard.stable()
    for _ in range(2):
        shard.groups.replay_group(GroupMetadataKey(group="g"), None)
    assert shard.groups.group_ids() == []
    assert shard.timers.scheduled == {}
