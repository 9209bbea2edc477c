"""JoinGroup: admission, member ids, and effects on other members."""

from __future__ import annotations

import pytest

from plog.error_codes import ErrorCode
from plog.errors import CoordinatorNotAvailable, NotCoordinator, RebalanceInProgress
from plogd.coordinator.group.rebalance import NEW_MEMBER_TIMEOUT_MS
from tests.helpers.group.group_shard import SESSION_MS, GroupShard, subscription

RANGE = {"range": subscription("t")}
STICKY_FIRST = {"sticky": subscription("t"), "range": subscription("t")}


# -- without an id ----------------------------------------------------------------------------


def test_new_member_gets_an_id_and_must_join_again() -> None:
    shard = GroupShard()
    answer = shard.join(client_id="rdkafka").response()
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert answer.member_id.startswith("rdkafka-")
    assert shard.group().pending_joins == {answer.member_id}
    assert shard.state == "Empty"

    asked = shard.join(answer.member_id)
    assert asked.is_waiting
    shard.settle()
    joined = asked.response()
    assert (joined.error_code, joined.generation_id) == (0, 1)
    assert (joined.member_id, joined.leader) == (answer.member_id, answer.member_id)
    assert (joined.protocol_type, joined.protocol_name) == ("consumer", "range")
    assert [one.member_id for one in joined.members] == [answer.member_id]
    assert joined.members[0].metadata == subscription("t")
    assert not joined.skip_assignment


def test_new_client_becomes_a_member_immediately_before_version_4() -> None:
    shard = GroupShard()
    asked = shard.join(version=3)
    shard.settle()
    assert asked.response().generation_id == 1


def test_member_ids_are_unique() -> None:
    shard = GroupShard()
    assert len({shard.new_id() for _ in range(50)}) == 50


def test_static_client_becomes_a_member_immediately() -> None:
    shard = GroupShard()
    asked = shard.join(instance="i")
    shard.settle()
    joined = asked.response()
    assert joined.member_id.startswith("i-")
    assert joined.members[0].group_instance_id == "i"
    assert shard.group().static_member_id("i") == joined.member_id


def test_only_the_leader_receives_the_members() -> None:
    shard = GroupShard()
    ids = [shard.new_id() for _ in range(3)]
    asked = [shard.join(one) for one in ids]
    shard.settle()
    leader, *followers = [one.response() for one in asked]
    assert [one.member_id for one in leader.members] == ids
    assert [one.members for one in followers] == [[], []]
    assert {one.leader for one in followers} == {leader.member_id}


def test_unused_pending_id_expires_after_the_session_timeout() -> None:
    shard = GroupShard()
    member_id = shard.new_id()
    shard.advance(SESSION_MS)
    assert shard.group().pending_joins == set()
    assert shard.join(member_id).code == ErrorCode.UNKNOWN_MEMBER_ID
    assert shard.timers.scheduled == {}


def test_rebalance_waits_for_pending_members() -> None:
    shard = GroupShard()
    [leader] = shard.stable()
    pending = shard.new_id()
    again = shard.join(leader.member_id)
    shard.settle()
    assert again.is_waiting
    newcomer = shard.join(pending)
    assert again.response().generation_id == newcomer.response().generation_id == 2


def test_rebalance_completes_when_a_pending_id_expires() -> None:
    shard = GroupShard()
    [leader] = shard.stable()
    shard.new_id()
    again = shard.join(leader.member_id)
    shard.advance(SESSION_MS)
    assert again.response().generation_id == 2


def test_pending_id_cannot_be_used_with_an_instance_id() -> None:
    shard = GroupShard()
    assert shard.join(shard.new_id(), instance="i").code == ErrorCode.UNKNOWN_MEMBER_ID


# -- refused requests -------------------------------------------------------------------------


def test_empty_group_id_is_refused() -> None:
    assert GroupShard().join(group="").code == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize(("session_ms", "code"), [(5, 26), (6, 0), (60, 0), (61, 26), (-1, 26)])
def test_session_timeout_must_be_within_bounds(session_ms: int, code: int) -> None:
    shard = GroupShard(group_min_session_timeout_ms=6, group_max_session_timeout_ms=60)
    asked = shard.join(session_ms=session_ms, instance="i")
    shard.settle()
    assert asked.code == code
    assert (shard.groups.group("g") is None) == (code != 0)


def test_member_id_of_a_missing_group_is_unknown() -> None:
    shard = GroupShard()
    assert shard.join("somebody").code == ErrorCode.UNKNOWN_MEMBER_ID
    assert shard.groups.group_ids() == []


def test_member_id_is_unknown_in_other_groups() -> None:
    shard = GroupShard()
    joined = {name: shard.join_new(group=name) for name in ("g1", "g2", "g3")}
    shard.settle()
    for name, asked in joined.items():
        for other in {"g1", "g2", "g3"} - {name}:
            assert shard.heartbeat(asked.response(), group=other) == ErrorCode.UNKNOWN_MEMBER_ID
        assert shard.heartbeat(asked.response(), group=name) == 0


@pytest.mark.parametrize("protocol_type", ["", "consumer"])
def test_member_without_protocols_creates_no_group(protocol_type: str) -> None:
    shard = GroupShard()
    asked = shard.join(protocols={}, protocol_type=protocol_type)
    assert asked.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert shard.groups.group_ids() == []
    assert shard.records == []


@pytest.mark.parametrize(
    ("protocols", "protocol_type"), [({"x": b""}, "consumer"), (RANGE, "connect"), ({}, "consumer")]
)
def test_incompatible_member_does_not_change_the_group(
    protocols: dict[str, bytes], protocol_type: str
) -> None:
    shard = GroupShard()
    [leader] = shard.stable()
    for instance in (None, "i"):
        asked = shard.join(protocols=protocols, protocol_type=protocol_type, instance=instance)
        assert asked.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    again = shard.join(leader.member_id, protocols=protocols, protocol_type=protocol_type)
    assert again.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert shard.state == "Stable"
    assert shard.heartbeat(leader) == 0


def test_empty_group_may_change_its_protocol_type() -> None:
    shard = GroupShard()
    [leader] = shard.stable()
    shard.leave_by_id(leader.member_id)
    asked = shard.join(instance="i", protocol_type="connect", protocols={"eager": b""})
    shard.settle()
    assert asked.response().protocol_type == "connect"


# -- the protocol -----------------------------------------------------------------------------


def test_selected_protocol_is_supported_by_all() -> None:
    shard = GroupShard()
    one = shard.join(instance="1", protocols=STICKY_FIRST)
    two = shard.join(instance="2", protocols=STICKY_FIRST)
    three = shard.join(instance="3", protocols=RANGE)
    shard.settle()
    assert {x.response().protocol_name for x in (one, two, three)} == {"range"}


def test_protocol_is_selected_in_each_generation() -> None:
    shard = GroupShard()
    old, new = shard.stable(2, protocols=RANGE)
    first, second = (shard.join(one.member_id, protocols=STICKY_FIRST) for one in (old, new))
    assert first.response().protocol_name == second.response().protocol_name == "sticky"


# -- members that join again ------------------------------------------------------------------


def test_rejoining_leader_starts_a_rebalance() -> None:
    shard = GroupShard()
    leader, follower = shard.stable(2)
    again = shard.join(leader.member_id)
    assert again.is_waiting
    assert shard.heartbeat(follower) == ErrorCode.REBALANCE_IN_PROGRESS
    shard.join(follower.member_id)
    assert again.response().generation_id == 2


def test_rejoining_follower_without_changes_gets_the_current_generation() -> None:
    shard = GroupShard()
    leader, follower = shard.stable(2)
    again = shard.join(follower.member_id).response()
    assert (again.generation_id, again.leader, again.members) == (1, leader.member_id, [])
    assert shard.state == "Stable"
    assert shard.sync(again).response().assignment == b"1"


def test_rejoining_follower_with_changes_starts_a_rebalance() -> None:
    shard = GroupShard()
    leader, follower = shard.stable(2)
    asked = shard.join(follower.member_id, protocols={"range": subscription("u")})
    assert asked.is_waiting
    assert shard.state == "PreparingRebalance"
    again = shard.join(leader.member_id).response()
    assert [one.metadata for one in again.members] == [subscription("t"), subscription("u")]


@pytest.mark.parametrize("who", [0, 1])
def test_member_that_missed_the_generation_gets_it_again(who: int) -> None:
    shard = GroupShard()
    ids = [shard.new_id() for _ in range(2)]
    asked = [shard.join(one) for one in ids]
    shard.settle()
    before = asked[who].response()
    assert shard.join(ids[who]).response() == before
    assert shard.state == "CompletingRebalance"


def test_change_between_join_and_assignment_starts_a_rebalance() -> None:
    shard = GroupShard()
    leader, follower = shard.stable(2)
    shard.join(leader.member_id)
    joined = shard.join(follower.member_id).response()
    waiting = shard.sync(joined)
    shard.join(leader.member_id, protocols={"range": subscription("u")})
    assert waiting.code == ErrorCode.REBALANCE_IN_PROGRESS
    assert shard.state == "PreparingRebalance"


def test_repeated_join_replaces_the_pending_one() -> None:
    shard = GroupShard()
    leader, follower = shard.stable(2)
    first = shard.join(leader.member_id)
    second = shard.join(leader.member_id)
    assert first.code == ErrorCode.REBALANCE_IN_PROGRESS
    assert second.is_waiting
    shard.join(follower.member_id)
    assert second.response().generation_id == 2


def test_version_0_uses_the_session_timeout_as_rebalance_timeout() -> None:
    shard = GroupShard()
    member_id = shard.new_id()
    asked = shard.join(member_id, rebalance_ms=-1)
    shard.settle()
    assert asked.code == 0
    assert shard.group().rebalance_timeout_ms == SESSION_MS


def test_join_reason_is_logged_and_shortened() -> None:
    shard = GroupShard()
    shard.join(instance="i", reason="new topic\n" + "x" * 1000)
    [report] = [one for one in shard.reports if "new topic" in one]
    assert "\n" not in report
    assert len(report) < 500


# -- group.max.size ---------------------------------------------------------------------------


def test_full_stable_group_refuses_new_members() -> None:
    shard = GroupShard(group_max_size=2)
    joined = shard.stable(2)
    assert shard.join().code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert shard.join(instance="i").code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert shard.state == "Stable"
    assert shard.join(joined[0].member_id).is_waiting


def test_returning_static_member_fits_in_a_full_group() -> None:
    shard = GroupShard(group_max_size=2)
    shard.stable(2, instance="i")
    assert shard.join(instance="i0").response().generation_id == 1
    assert shard.join(instance="i2").code == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_first_members_to_join_fit_during_a_rebalance() -> None:
    shard = GroupShard(group_max_size=2)
    first, second, third = (shard.new_id() for _ in range(3))
    asked = [shard.join(first), shard.join(second)]
    assert shard.join(third).code == ErrorCode.GROUP_MAX_SIZE_REACHED
    shard.settle()
    assert [one.response().generation_id for one in asked] == [1, 1]
    assert shard.group().pending_joins == set()


def test_oversized_loaded_group_keeps_the_first_members_to_join() -> None:
    shard = GroupShard()
    old = shard.stable(3)
    shard = shard.reload(group_max_size=2)
    assert shard.state == "PreparingRebalance"
    assert {shard.heartbeat(one) for one in old} == {ErrorCode.REBALANCE_IN_PROGRESS}
    first, second = (shard.join(one.member_id) for one in old[1:])
    assert first.is_waiting
    assert shard.join(old[0].member_id).code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert first.response().generation_id == second.response().generation_id == 2


# -- the record of a new group ----------------------------------------------------------------


def test_new_group_is_durable_before_its_first_response() -> None:
    shard = GroupShard()
    shard.hold()
    asked = shard.join()
    assert asked.is_waiting
    shard.release()
    assert asked.code == ErrorCode.MEMBER_ID_REQUIRED
    assert len(shard.records) == 1
    assert shard.reload().state == "Empty"


def test_new_group_is_written_once() -> None:
    shard = GroupShard()
    shard.hold()
    shard.join()
    shard.join()
    shard.release()
    assert len(shard.records) == 1


def test_group_that_cannot_be_written_does_not_exist() -> None:
    shard = GroupShard()
    shard.fail_next = NotCoordinator("no disk")
    assert shard.join().code == ErrorCode.NOT_COORDINATOR
    assert shard.groups.group_ids() == []
    assert shard.timers.scheduled == {}
    [leader] = shard.stable()
    assert leader.generation_id == 1


def test_failed_write_of_a_new_group_fails_all_joins() -> None:
    shard = GroupShard(group_initial_rebalance_delay_ms=3000)
    shard.hold()
    first = shard.join(version=3)
    second = shard.join(version=3)
    pending = shard.new_id()
    shard.release(CoordinatorNotAvailable("no disk"))
    assert {first.code, second.code} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert shard.join(pending).code == ErrorCode.UNKNOWN_MEMBER_ID
    assert shard.timers.scheduled == {}


def test_group_with_a_generation_survives_a_failed_first_write() -> None:
    shard = GroupShard()
    shard.hold()
    first = shard.join(version=3)
    shard.settle()
    shard.release(CoordinatorNotAvailable("no disk"))
    assert first.response().generation_id == 1
    assert shard.state == "CompletingRebalance"


# -- clients that disconnect during JoinGroup --------------------------------------------------


def test_new_member_is_removed_when_its_client_disconnects() -> None:
    shard = GroupShard()
    [leader] = shard.stable()
    newcomer = shard.join_new()
    assert shard.state == "PreparingRebalance"
    newcomer.leave()
    shard.settle()
    assert set(shard.group().members) == {leader.member_id}
    assert shard.join(leader.member_id).response().generation_id == 2


def test_disconnected_client_does_not_delay_the_others() -> None:
    shard = GroupShard()
    leader, follower = shard.stable(2)
    shard.join_new().leave()
    shard.settle()
    waiting = shard.join(leader.member_id)
    assert shard.join(follower.member_id).response().generation_id == 2
    assert [one.member_id for one in waiting.response().members] == [*shard.group().members]
    assert len(shard.group().members) == 2


def test_group_becomes_empty_when_its_last_new_member_disconnects() -> None:
    shard = GroupShard(group_initial_rebalance_delay_ms=3000)
    asked = shard.join_new()
    asked.leave()
    shard.advance(3000)
    assert shard.state == "Empty"
    assert shard.timers.scheduled == {}


def test_disconnected_member_may_return_within_its_session() -> None:
    shard = GroupShard()
    leader, follower = shard.stable(2)
    shard.join(leader.member_id).leave()
    shard.settle()
    waiting = shard.join(follower.member_id)
    assert waiting.is_waiting
    again = shard.join(leader.member_id)
    assert again.response().generation_id == waiting.response().generation_id == 2


def test_disconnected_member_is_removed_after_its_session() -> None:
    shard = GroupShard()
    leader, follower = shard.stable(2)
    shard.join(leader.member_id).leave()
    shard.settle()
    waiting = shard.join(follower.member_id)
    shard.advance(SESSION_MS - 1)
    assert waiting.is_waiting
    shard.advance(1)
    assert waiting.response().generation_id == 2
    assert set(shard.group().members) == {follower.member_id}


def test_new_static_member_may_return_after_a_disconnection() -> None:
    shard = GroupShard()
    [leader] = shard.stable()
    static = shard.join(instance="i")
    static.leave()
    shard.settle()
    waiting = shard.join(leader.member_id)
    assert waiting.is_waiting
    again = shard.join(instance="i")
    assert again.response().generation_id == waiting.response().generation_id == 2
    assert len(shard.group().members) == 2


def test_client_that_disconnects_as_the_generation_starts_stays_until_its_session_ends() -> None:
    shard = GroupShard()
    [leader] = shard.stable()
    newcomer = shard.join_new()
    newcomer.leave()
    waiting = shard.join(leader.member_id)  # In the same turn.
    assert len(waiting.response().members) == 2
    shard.settle()
    for _ in range(3):
        shard.advance(SESSION_MS / 2)
        shard.heartbeat(waiting.response())
    assert set(shard.group().members) == {leader.member_id}


def test_new_member_expires_while_it_waits_for_its_first_generation() -> None:
    shard = GroupShard()
    leader, _ = shard.stable(2, session_ms=NEW_MEMBER_TIMEOUT_MS * 3, rebalance_ms=2**31 - 1)
    newcomer = shard.join_new(rebalance_ms=2**31 - 1)
    shard.join(leader.member_id)
    shard.advance(NEW_MEMBER_TIMEOUT_MS)
    assert newcomer.code == ErrorCode.UNKNOWN_MEMBER_ID


def test_replaced_request_has_no_effect_when_its_client_disconnects() -> None:
    shard = GroupShard()
    leader, follower = shard.stable(2)
    first = shard.join(leader.member_id)
    second = shard.join(leader.member_id)
    assert isinstance(first.error, RebalanceInProgress)
    first.later.cancel()
    shard.settle()
    shard.join(follower.member_id)
    assert second.response().generation_id == 2
