"""Requests to the groups of a shard: sync, heartbeat, leave, describe, list and delete."""

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
from tests.helpers.group.group_shard import REBALANCE_MS, SESSION_MS, GroupShard, subscription


def change(joined: JoinGroupResponse, **fields: Any) -> JoinGroupResponse:
    """Return the same member with some fields wrong."""
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
def test_sync_with_wrong_fields_is_refused(fields: dict[str, Any], code: int) -> None:
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
def test_heartbeat_with_wrong_fields_is_refused(fields: dict[str, Any], code: int) -> None:
    shard = GroupShard()
    [joined] = shard.stable()
    assert shard.heartbeat(change(joined, **fields)) == code


def test_heartbeat_of_a_missing_group_is_refused() -> None:
    shard = GroupShard()
    [joined] = shard.stable()
    assert shard.heartbeat(joined, group="other") == ErrorCode.UNKNOWN_MEMBER_ID
    assert shard.heartbeat(joined, group="") == ErrorCode.INVALID_GROUP_ID
    shard.leave_by_id(joined.member_id)
    assert shard.heartbeat(joined) == ErrorCode.UNKNOWN_MEMBER_ID
    assert shard.sync(joined).code == ErrorCode.UNKNOWN_MEMBER_ID


def test_pending_id_is_not_a_member() -> None:
    shard = GroupShard()
    [joined] = shard.stable()
    pending = change(joined, member_id=shard.new_id())
    assert shard.heartbeat(pending) == ErrorCode.UNKNOWN_MEMBER_ID
    assert shard.sync(pending).code == ErrorCode.UNKNOWN_MEMBER_ID


def test_sync_during_a_rebalance_is_refused() -> None:
    shard = GroupShard()
    leader, follower = shard.stable(2)
    shard.join(leader.member_id)
    assert shard.sync(follower).code == ErrorCode.REBALANCE_IN_PROGRESS


def test_repeated_sync_replaces_the_pending_one() -> None:
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


def test_leaving_member_starts_a_rebalance() -> None:
    shard = GroupShard()
    leader, follower = shard.stable(2)
    assert shard.leave_by_id(leader.member_id) == [0]
    assert shard.heartbeat(leader) == ErrorCode.UNKNOWN_MEMBER_ID
    assert shard.heartbeat(follower) == ErrorCode.REBALANCE_IN_PROGRESS
    assert shard.join(follower.member_id).response().leader == follower.member_id


def test_group_becomes_empty_when_the_last_member_leaves() -> None:
    shard = GroupShard()
    [joined] = shard.stable()
    shard.leave_by_id(joined.member_id)
    assert (shard.state, shard.group().generation_id) == ("Empty", 2)
    assert shard.reload().state == "Empty"
    assert shard.group().protocol_type == "consumer"


def test_members_leaving_together_get_their_own_results() -> None:
    shard = GroupShard()
    first, second, third = shard.stable(3)
    pending = shard.new_id()
    gone = [first.member_id, "stranger", pending, second.member_id, second.member_id]
    assert shard.leave_by_id(*gone) == [0, 25, 0, 0, 25]
    assert set(shard.group().members) == {third.member_id}
    assert shard.group().pending_joins == set()
    assert shard.join(third.member_id).response().generation_id == 2


def test_leave_response_repeats_the_ids_of_the_request() -> None:
    shard = GroupShard()
    [joined] = shard.stable(1, instance="i")
    answer = shard.leave(MemberIdentity(member_id=joined.member_id, group_instance_id="i0"))
    [member] = answer.members
    assert (member.member_id, member.group_instance_id) == (joined.member_id, "i0")
    assert (answer.error_code, member.error_code) == (0, 0)


def test_leaving_a_missing_group_is_refused() -> None:
    shard = GroupShard()
    assert shard.leave_by_id("a", "b") == [ErrorCode.UNKNOWN_MEMBER_ID] * 2
    assert shard.write(lambda: shard.groups.leave("", [])).code == ErrorCode.INVALID_GROUP_ID
    assert shard.leave_by_id() == []


def test_unknown_leaving_member_does_not_affect_the_group() -> None:
    shard = GroupShard()
    [joined] = shard.stable()
    shard.leave_by_id("stranger")
    shard.leave(MemberIdentity(member_id=joined.member_id, group_instance_id="i"))
    assert shard.heartbeat(joined) == 0


def test_leaving_pending_member_does_not_affect_the_group() -> None:
    shard = GroupShard()
    [joined] = shard.stable()
    assert shard.leave_by_id(shard.new_id()) == [0]
    assert shard.heartbeat(joined) == 0
    assert shard.group().pending_joins == set()


def test_rebalance_completes_when_the_missing_member_leaves() -> None:
    shard = GroupShard()
    leader, follower = shard.stable(2)
    pending = shard.new_id()
    waiting = shard.join(leader.member_id)
    shard.leave_by_id(follower.member_id)
    assert waiting.is_waiting
    shard.leave_by_id(pending)
    assert waiting.response().generation_id == 2


@pytest.mark.parametrize("phase", ["join", "sync"])
def test_pending_requests_of_a_removed_member_fail(phase: str) -> None:
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
def test_offset_commit_requires_a_member(
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


def test_offset_commit_between_join_and_assignment_is_refused() -> None:
    shard = GroupShard()
    asked = shard.join_new()
    shard.settle()
    joined = asked.response()
    with pytest.raises(RebalanceInProgress):
        shard.groups.validate_offset_commit("g", joined.member_id, None, joined.generation_id)


def test_offset_commit_restarts_the_session() -> None:
    shard = GroupShard()
    [joined] = shard.stable()
    for _ in range(4):
        shard.advance(SESSION_MS - 1)
        shard.groups.validate_offset_commit("g", joined.member_id, None, 1)
    assert shard.heartbeat(joined) == 0


def test_offset_commit_during_a_rebalance_restarts_the_session() -> None:
    shard = GroupShard()
    leader, follower = shard.stable(2)
    shard.join(leader.member_id)
    for _ in range(3):
        shard.advance(SESSION_MS - 1)
        shard.groups.validate_offset_commit("g", follower.member_id, None, 1)
    assert shard.heartbeat(follower) == ErrorCode.REBALANCE_IN_PROGRESS


def test_simple_group_has_no_members() -> None:
    shard = GroupShard()
    group = shard.groups.get_or_create_simple("g")
    assert shard.groups.get_or_create_simple("g") is group
    assert (group.is_empty, group.protocol_type) == (True, None)
    assert shard.records == []
    shard.groups.validate_offset_commit("g", "", None, -1)
    [leader] = shard.stable()
    assert leader.generation_id == 1


# -- describing and listing -------------------------------------------------------------------


def test_stable_group_is_described_completely() -> None:
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


def test_description_omits_the_protocol_during_a_rebalance() -> None:
    shard = GroupShard()
    leader, _ = shard.stable(2)
    shard.join(leader.member_id)
    described = shard.groups.describe("g")
    assert (described.group_state, described.protocol_data) == ("PreparingRebalance", "")
    assert [one.member_metadata for one in described.members] == [b"", b""]


def test_simple_group_is_described() -> None:
    shard = GroupShard()
    shard.groups.get_or_create_simple("g")
    described = shard.groups.describe("g")
    assert (described.group_state, described.protocol_type, described.members) == ("Empty", "", [])


def test_missing_group_cannot_be_described() -> None:
    with pytest.raises(GroupIdNotFound):
        GroupShard().groups.describe("g")


def test_group_ids_include_all_groups() -> None:
    shard = GroupShard()
    shard.stable()
    shard.groups.get_or_create_simple("simple")
    assert [group.group_id for group in shard.groups] == ["g", "simple"]
    assert shard.groups.group_ids() == ["g", "simple"]


# -- deleting ---------------------------------------------------------------------------------


def test_group_without_members_is_deleted() -> None:
    shard = GroupShard()
    shard.stable()
    shard.groups.get_or_create_simple("simple")
    assert shard.write(lambda: shard.groups.delete("g")).code == ErrorCode.NON_EMPTY_GROUP
    assert shard.write(lambda: shard.groups.delete("missing")).code == ErrorCode.GROUP_ID_NOT_FOUND
    shard.write(lambda: shard.groups.delete("simple"))
    assert shard.records[-1].key == GroupMetadataKey(group="simple")
    assert shard.records[-1].value is None
    assert shard.groups.group_ids() == ["g"]


def test_deleted_group_does_not_reappear() -> None:
    shard = GroupShard()
    [joined] = shard.stable()
    shard.leave_by_id(joined.member_id)
    shard.write(lambda: shard.groups.delete("g"))
    assert shard.reload().groups.group_ids() == []
    [joined] = shard.stable()
    assert joined.generation_id == 1
    assert shard.reload().group().generation_id == 1


def test_pending_member_of_a_deleted_group_joins_as_new() -> None:
    shard = GroupShard()
    member_id = shard.new_id()
    shard.write(lambda: shard.groups.delete("g"))
    assert shard.timers.scheduled == {}
    assert shard.join(member_id).code == ErrorCode.UNKNOWN_MEMBER_ID
    assert shard.join().code == ErrorCode.MEMBER_ID_REQUIRED


def test_unused_group_is_removed_unless_it_has_pending_ids() -> None:
    shard = GroupShard()
    [joined] = shard.stable()
    assert shard.groups.tombstones_if_unused("g") == []
    shard.leave_by_id(joined.member_id)
    pending = shard.new_id()
    assert shard.groups.tombstones_if_unused("g") == []
    shard.leave_by_id(pending)
    [tombstone] = shard.groups.tombstones_if_unused("g")
    assert (tombstone.key, tombstone.value) == (GroupMetadataKey(group="g"), None)
    assert shard.groups.tombstones_if_unused("missing") == []


# -- loading and unloading --------------------------------------------------------------------


def test_later_record_replaces_an_earlier_one() -> None:
    shard = GroupShard()
    joined = shard.stable(2)
    shard.rebalance(joined)
    loaded = shard.reload()
    assert loaded.group().generation_id == 2
    assert loaded.groups.group_ids() == ["g"]


def test_members_continue_after_a_restart() -> None:
    shard = GroupShard()
    joined = shard.stable(3)
    shard = shard.reload()
    assert shard.state == "Stable"
    assert [shard.heartbeat(one) for one in joined] == [0, 0, 0]
    assert [shard.sync(one).response().assignment for one in joined] == [b"0", b"1", b"2"]
    shard.rebalance(joined)


@pytest.mark.parametrize("phase", ["join", "sync", "written"])
def test_pending_requests_fail_with_not_coordinator_when_the_shard_unloads(phase: str) -> None:
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
    shard.release(NotCoordinator("unloaded"))  # Too late to have an effect.
    shard.advance(REBALANCE_MS)


def test_repeated_tombstone_is_harmless() -> None:
    shard = GroupShard()
    shard.stable()
    for _ in range(2):
        shard.groups.replay_group(GroupMetadataKey(group="g"), None)
    assert shard.groups.group_ids() == []
    assert shard.timers.scheduled == {}
