"""JoinGroup: requests and responses as frames, and permitted requests in each group state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from plog.errors import ErrorCode
from plog.wire.messages.find_coordinator import FindCoordinatorRequest
from tests.helpers.group.group_frames import (
    heartbeat,
    join,
    join_request,
    leave,
    stable,
    sync,
    sync_request,
)
from tests.helpers.offsets import commit, fetch
from tests.helpers.sim.sim_broker import Asked, SimBroker, create_topic

EVERY_VERSION = range(10)


@pytest.fixture
def broker() -> SimBroker:
    broker = SimBroker().start()
    create_topic(broker, "t", 4)
    broker.ask(FindCoordinatorRequest(key="g"), 1)
    return broker


def group_state(broker: SimBroker, group_id: str = "g") -> str:
    coordinator = broker.broker.group_coordinator
    shard = coordinator.runtime.shards[coordinator.partition_for(group_id)].shard
    group = shard.groups.group(group_id)
    return "" if group is None else group.state.value


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_member_joins_in_every_version(broker: SimBroker, version: int) -> None:
    answer = broker.ask(join_request(), version)
    if version >= 4:
        assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert answer.protocol_name == (None if version >= 7 else "")
        answer = broker.ask(join_request(answer.member_id), version)
    assert (answer.error_code, answer.generation_id) == (0, 1)
    assert answer.protocol_name == "range"
    assert answer.protocol_type == ("consumer" if version >= 7 else None)
    assert answer.leader == answer.member_id
    assert answer.member_id.startswith("test-")
    [member] = answer.members
    assert (member.member_id, member.metadata) == (answer.member_id, b"meta")


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_refusal_is_answered_in_every_version(broker: SimBroker, version: int) -> None:
    answer = broker.ask(join_request("stranger"), version)
    assert (answer.error_code, answer.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "stranger")
    assert answer.generation_id == -1
    assert answer.protocol_name == (None if version >= 7 else "")


def test_version_0_uses_session_timeout_as_rebalance_timeout(broker: SimBroker) -> None:
    answer = broker.ask(join_request(session_timeout_ms=7000), 0)
    assert answer.error_code == 0
    coordinator = broker.broker.group_coordinator
    shard = coordinator.runtime.shards[coordinator.partition_for("g")].shard
    group = shard.groups.group("g")
    assert group is not None
    assert group.rebalance_timeout_ms == 7000


def test_response_waits_for_the_other_members(
    broker: SimBroker,
) -> None:
    [leader] = stable(broker)
    newcomer = broker.ask(join_request(), 9).member_id
    waiting = broker.begin(join_request(newcomer), 9)
    broker.settle()
    assert not waiting.is_done
    assert heartbeat(broker, leader) == ErrorCode.REBALANCE_IN_PROGRESS
    again = broker.ask(join_request(leader.member_id), 9)
    assert [one.member_id for one in again.members] == [leader.member_id, newcomer]
    assert waiting.response().generation_id == again.generation_id == 2


def test_disconnect_while_joining_does_not_block_the_others(broker: SimBroker) -> None:
    leader, follower = stable(broker, 2)
    newcomer = broker.ask(join_request(), 9).member_id
    broker.begin(join_request(newcomer), 9).cancel()
    broker.settle()
    waiting = broker.begin(join_request(leader.member_id), 9)
    assert broker.ask(join_request(follower.member_id), 9).generation_id == 2
    assert len(waiting.response().members) == 2


def test_expired_member_is_removed_and_its_partitions_reassigned(
    broker: SimBroker,
) -> None:
    leader, follower = stable(broker, 2)
    for _ in range(4):
        broker.ports.advance(5000)
        code = heartbeat(broker, leader)
    assert code == ErrorCode.REBALANCE_IN_PROGRESS
    again = join(broker, leader.member_id)
    assert [one.member_id for one in again.members] == [leader.member_id]
    answer = sync(broker, again, {leader.member_id: b"all"})
    assert answer.assignment == b"all"
    assert heartbeat(broker, follower) == ErrorCode.UNKNOWN_MEMBER_ID


def test_members_continue_after_a_broker_restart(broker: SimBroker) -> None:
    leader, follower = stable(broker, 2)
    assert commit(broker, "g", {("t", 0): 5}, **_of(leader)) == {("t", 0): 0}
    broker = broker.restart()
    assert [heartbeat(broker, one) for one in (leader, follower)] == [0, 0]
    assert sync(broker, follower).assignment == b"1"
    assert fetch(broker, "g") == {("t", 0): 5}
    assert commit(broker, "g", {("t", 0): 6}, **_of(leader)) == {("t", 0): 0}


def test_members_continue_after_power_loss(broker: SimBroker) -> None:
    leader, follower = stable(broker, 2)
    again = broker.restart(broker.files.crash(broker.ports.random))
    assert [heartbeat(again, one) for one in (leader, follower)] == [0, 0]
    assert sync(again, follower).assignment == b"1"


def _of(member: Any, **fields: Any) -> Mapping[str, Any]:
    identity = {
        "member_id": member.member_id,
        "generation_id_or_member_epoch": member.generation_id,
    }
    return identity | fields


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, 0),
        ({"member_id": "x"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation_id_or_member_epoch": 2}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "", "generation_id_or_member_epoch": -1}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_only_members_of_the_generation_commit(
    broker: SimBroker, fields: Mapping[str, Any], code: int
) -> None:
    [leader] = stable(broker)
    assert commit(broker, "g", {("t", 0): 5}, **_of(leader, **fields)) == {("t", 0): code}


def test_commits_are_refused_between_join_and_assignment(broker: SimBroker) -> None:
    joined = join(broker)
    actual = commit(broker, "g", {("t", 0): 5}, **_of(joined))
    assert actual == {("t", 0): ErrorCode.REBALANCE_IN_PROGRESS}


def test_members_can_commit_before_they_rejoin(broker: SimBroker) -> None:
    leader, follower = stable(broker, 2)
    broker.begin(join_request(leader.member_id), 9)
    broker.settle()
    assert group_state(broker) == "PreparingRebalance"
    assert commit(broker, "g", {("t", 1): 5}, **_of(follower)) == {("t", 1): 0}


def test_empty_group_id_is_refused(broker: SimBroker) -> None:
    assert broker.ask(join_request(group_id=""), 9).error_code == ErrorCode.INVALID_GROUP_ID


def test_client_with_a_long_id_can_join(broker: SimBroker) -> None:
    answer = broker.ask(join_request(group_instance_id="é" * 16_000), 5, client_id="x" * 32_767)
    assert answer.error_code == 0
    synced = broker.ask(sync_request(answer, {answer.member_id: b"x"}), 4)
    assert synced.assignment == b"x"
    assert heartbeat(broker.restart(), answer) == 0


def test_leaving_member_triggers_a_rebalance_of_the_rest(broker: SimBroker) -> None:
    leader, follower = stable(broker, 2)
    assert leave(broker, follower.member_id) == [0]
    again = join(broker, leader.member_id)
    assert len(again.members) == 1
    assert leave(broker, leader.member_id) == [0]
    assert group_state(broker) == "Empty"


def test_stopping_broker_answers_waiting_members(broker: SimBroker) -> None:
    leader, _ = stable(broker, 2)
    waiting: Asked = broker.begin(join_request(leader.member_id), 9)
    broker.stop()
    assert waiting.response().error_code == ErrorCode.NOT_COORDINATOR
