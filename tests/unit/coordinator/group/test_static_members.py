"""Static members (KIP-345): a returning client with an instance id keeps its membership."""

from __future__ import annotations

from typing import Any

import pytest

from plog.error_codes import ErrorCode
from plog.errors import CoordinatorNotAvailable
from plog.wire.messages.join_group import JoinGroupResponse
from plog.wire.messages.leave_group import MemberIdentity
from tests.helpers.group.group_shard import REBALANCE_MS, SESSION_MS, GroupShard, subscription


def stable(count: int = 2, **settings: Any) -> tuple[GroupShard, list[JoinGroupResponse]]:
    """Return a group of static members i0, i1, …, starting with the leader i0."""
    shard = GroupShard(**settings)
    return shard, shard.stable(count, instance="i")


def test_returning_follower_causes_no_rebalance() -> None:
    shard, (leader, follower) = stable()
    again = shard.join(instance="i1").response()
    assert again.member_id != follower.member_id
    assert (again.generation_id, again.leader) == (1, leader.member_id)
    assert (again.members, again.skip_assignment) == ([], False)
    assert shard.state == "Stable"
    assert shard.heartbeat(leader) == 0
    assert shard.sync(again, instance="i1").response().assignment == b"1"


def test_returning_leader_receives_skip_assignment() -> None:
    shard, (_, follower) = stable()
    again = shard.join(instance="i0").response()
    assert (again.leader, again.skip_assignment) == (again.member_id, True)
    assert [one.member_id for one in again.members] == [follower.member_id, again.member_id]
    assert [one.group_instance_id for one in again.members] == ["i1", "i0"]
    assert shard.sync(again, {}).response().assignment == b"0"
    assert shard.state == "Stable"
    assert shard.heartbeat(follower) == 0


def test_returning_leader_receives_another_leader_id_before_version_9() -> None:
    shard, (leader, _) = stable()
    again = shard.join(instance="i0", version=8).response()
    assert (again.leader, again.members, again.skip_assignment) == (leader.member_id, [], False)
    assert shard.group().leader_id == again.member_id
    assert shard.sync(again).response().assignment == b"0"


def test_old_member_id_is_fenced() -> None:
    shard, (_, follower) = stable()
    shard.join(instance="i1")
    assert shard.heartbeat(follower, instance="i1") == ErrorCode.FENCED_INSTANCE_ID
    assert shard.sync(follower, instance="i1").code == ErrorCode.FENCED_INSTANCE_ID
    assert shard.join(follower.member_id, instance="i1").code == ErrorCode.FENCED_INSTANCE_ID
    assert shard.heartbeat(follower) == ErrorCode.UNKNOWN_MEMBER_ID
    gone = MemberIdentity(member_id=follower.member_id, group_instance_id="i1")
    assert shard.leave(gone).members[0].error_code == ErrorCode.FENCED_INSTANCE_ID


def test_unknown_instance_id_is_refused() -> None:
    shard, (leader, _) = stable()
    assert shard.heartbeat(leader, instance="other") == ErrorCode.UNKNOWN_MEMBER_ID


def test_new_member_id_is_durable_before_the_response() -> None:
    shard, (leader, _) = stable()
    shard.hold()
    asked = shard.join(instance="i1")
    assert asked.is_waiting
    shard.release()
    again = asked.response()
    loaded = shard.reload()
    assert loaded.group().static_member_id("i1") == again.member_id
    assert loaded.heartbeat(again, instance="i1") == 0
    assert loaded.heartbeat(leader) == 0
    assert loaded.sync(again).response().assignment == b"1"


def test_old_member_is_restored_when_the_write_fails() -> None:
    shard, (leader, follower) = stable()
    shard.hold()
    asked = shard.join(
        instance="i1", client_id="new", session_ms=7_000, protocols={"range": subscription("u")}
    )
    shard.release(CoordinatorNotAvailable("no disk"))
    assert asked.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert shard.heartbeat(follower, instance="i1") == 0
    assert shard.heartbeat(leader) == 0
    member = shard.group().members[follower.member_id]
    assert (member.client_id, member.session_timeout_ms) == ("client", SESSION_MS)
    assert member.metadata("range") == subscription("t")
    assert shard.group().waiting_joins == 0
    shard.advance(SESSION_MS - 1)
    assert shard.state == "Stable"
    shard.advance(1)
    assert shard.state != "Stable"


def test_rebalance_during_the_write_includes_the_new_member() -> None:
    shard, (leader, _) = stable()
    shard.hold()
    asked = shard.join(instance="i1")
    again = shard.join(leader.member_id, instance="i0")
    shard.release()
    assert asked.response().generation_id == again.response().generation_id == 2
    assert shard.state == "CompletingRebalance"


def test_rebalance_includes_the_new_member_when_its_write_fails() -> None:
    shard, (leader, _) = stable()
    shard.hold()
    asked = shard.join(instance="i1")
    again = shard.join(leader.member_id, instance="i0")
    shard.release(CoordinatorNotAvailable("no disk"))
    assert asked.response().generation_id == again.response().generation_id == 2
    assert asked.response().member_id in shard.group().members


def test_changed_protocol_starts_a_rebalance() -> None:
    shard = GroupShard()
    both = {"range": subscription("t"), "sticky": subscription("t")}
    shard.stable(1, instance="i", protocols=both)
    asked = shard.join(instance="i0", protocols={"sticky": subscription("t"), **both})
    shard.settle()
    assert asked.response().generation_id == 2
    assert asked.response().protocol_name == "sticky"


def test_changed_topics_are_recorded_without_a_rebalance() -> None:
    shard, _ = stable()
    shard.join(instance="i1", protocols={"range": subscription("u")})
    assert shard.state == "Stable"
    assert shard.group().subscribed_topics == {"t", "u"}


def test_return_before_the_assignment_starts_a_rebalance() -> None:
    shard, (leader, follower) = stable()
    shard.join(leader.member_id, instance="i0")
    joined = shard.join(follower.member_id, instance="i1").response()
    waiting = shard.sync(joined, instance="i1")
    asked = shard.join(instance="i1")
    assert waiting.code == ErrorCode.FENCED_INSTANCE_ID
    assert asked.is_waiting
    assert shard.state == "PreparingRebalance"
    shard.join(leader.member_id, instance="i0")
    assert asked.response().generation_id == 3


def test_replaced_member_is_fenced_during_a_rebalance_and_the_new_one_waits() -> None:
    shard, (leader, follower) = stable()
    old = shard.join(follower.member_id, instance="i1", protocols={"range": subscription("u")})
    new = shard.join(instance="i1")
    assert old.code == ErrorCode.FENCED_INSTANCE_ID
    assert new.is_waiting
    shard.join(leader.member_id, instance="i0")
    assert new.response().generation_id == 2
    assert len(shard.group().members) == 2


def test_first_of_two_clients_with_one_instance_id_is_fenced() -> None:
    shard, _ = stable()
    shard.hold()
    first = shard.join(instance="i1")
    second = shard.join(instance="i1")
    shard.release()
    assert first.code == ErrorCode.FENCED_INSTANCE_ID
    assert shard.group().static_member_id("i1") == second.response().member_id


def test_static_member_may_return_within_its_session_timeout() -> None:
    shard, (leader, _) = stable()
    for _ in range(3):
        shard.advance(SESSION_MS / 4)
        assert shard.heartbeat(leader) == 0
    again = shard.join(instance="i1").response()
    shard.advance(SESSION_MS - 1)
    shard.heartbeat(again)
    assert len(shard.group().members) == 2


def test_static_member_is_removed_after_its_session_timeout() -> None:
    shard, (leader, _) = stable()
    shard.advance(SESSION_MS / 2)
    shard.heartbeat(leader)
    shard.advance(SESSION_MS / 2)
    assert shard.heartbeat(leader) == ErrorCode.REBALANCE_IN_PROGRESS
    assert shard.group().static_member_id("i1") is None


def test_late_static_member_stays_in_the_group() -> None:
    shard = GroupShard()
    leader, late = shard.stable(2, instance="i", session_ms=REBALANCE_MS * 3)
    waiting = shard.join(leader.member_id, instance="i0", session_ms=REBALANCE_MS * 3)
    shard.advance(REBALANCE_MS)
    again = waiting.response()
    assert {one.member_id for one in again.members} == {leader.member_id, late.member_id}
    shard.sync(again, {late.member_id: b"later"})
    assert shard.join(instance="i1").response().generation_id == 2


def test_admin_client_removes_an_instance() -> None:
    shard, (leader, follower) = stable()
    answer = shard.leave(MemberIdentity(group_instance_id="i1"), MemberIdentity())
    assert [(x.group_instance_id, x.error_code) for x in answer.members] == [
        ("i1", 0),
        (None, ErrorCode.UNKNOWN_MEMBER_ID),
    ]
    assert set(shard.group().members) == {leader.member_id}
    assert shard.heartbeat(follower, instance="i1") == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("instance", ["i0", "i1"])
def test_client_id_and_host_of_the_new_client_apply(instance: str) -> None:
    shard, _ = stable()
    again = shard.join(instance=instance, client_id="second").response()
    [member] = [x for x in shard.groups.describe("g").members if x.member_id == again.member_id]
    assert (member.client_id, member.group_instance_id) == ("second", instance)


def test_client_that_disconnects_during_the_write_may_return() -> None:
    shard, _ = stable()
    shard.hold()
    shard.join(instance="i1").leave()
    shard.settle()
    shard.release()
    assert shard.state == "Stable"
    assert shard.join(instance="i1").response().generation_id == 1


def test_returning_member_with_another_client_id_leaves_no_memory_counted() -> None:
    shard = GroupShard()
    before = shard.memory.used_bytes
    for _ in range(3):
        shard.join(instance="i", client_id="c" * 30_000)
        shard.settle()
        again = shard.join(instance="i", client_id="x")
        shard.settle()
        member_id = again.response().member_id
        shard.leave(MemberIdentity(member_id=member_id, group_instance_id="i"))
        shard.settle()
        assert shard.memory.used_bytes - before < 30_000
