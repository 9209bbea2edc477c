"""Bounds on the memory of groups: per member, per group and in total."""

from __future__ import annotations

import random

import pytest

from plog.error_codes import ErrorCode
from plog.errors import CoordinatorNotAvailable, InvalidRequest
from plog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from plogd.config import BrokerConfig
from plogd.coordinator.group.group_memory import MAX_PROTOCOLS, GroupMemory, shortened
from tests.helpers.group.group_shard import SESSION_MS, GroupShard, subscription
from tests.helpers.sim.sim_ports import SimPorts

KIB, MIB = 1 << 10, 1 << 20


def _metadata(nbytes: int) -> dict[str, bytes]:
    return {"range": bytes(nbytes)}


def _memory() -> GroupMemory:
    return GroupMemory(BrokerConfig, SimPorts().clock)


def _request(*protocols: tuple[str, bytes]) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g",
        protocols=[JoinGroupRequestProtocol(name=n, metadata=m) for n, m in protocols],
    )


# -- one member -------------------------------------------------------------------------------


def test_member_with_much_metadata_is_refused() -> None:
    assert _memory().check_join(_request(("range", bytes(MIB - KIB)))) < MIB
    with pytest.raises(InvalidRequest, match=r"plog\.group\.member\.max\.bytes"):
        _memory().check_join(_request(("range", bytes(MIB))))
    half = bytes(MIB // 2)
    with pytest.raises(InvalidRequest, match=r"plog\.group\.member\.max\.bytes"):
        _memory().check_join(_request(("range", half), ("sticky", half)))


def test_member_with_many_protocols_is_refused() -> None:
    protocols = [(str(number), b"") for number in range(MAX_PROTOCOLS + 1)]
    _memory().check_join(_request(*protocols[:-1]))
    with pytest.raises(InvalidRequest, match="101 protocols"):
        _memory().check_join(_request(*protocols))


# -- one group --------------------------------------------------------------------------------


def test_group_refuses_members_beyond_its_bound_and_keeps_existing_ones() -> None:
    shard = GroupShard(plog_group_max_bytes=MIB)
    joined = [shard.join_new(protocols=_metadata(300 * KIB)) for _ in range(3)]
    late = shard.join_new(protocols=_metadata(300 * KIB))
    assert late.code == ErrorCode.GROUP_MAX_SIZE_REACHED
    shard.settle()
    assert [one.response().generation_id for one in joined] == [1, 1, 1]
    assert shard.group().size_bytes == shard.memory.used_bytes <= MIB
    assert shard.join_new(protocols=_metadata(KIB)).is_waiting


def test_group_refuses_pending_ids_beyond_its_bound_until_some_expire() -> None:
    shard = GroupShard(plog_group_max_bytes=64 * KIB)
    answers = [shard.join() for _ in range(100)]
    codes = [answer.code for answer in answers]
    given = codes.count(ErrorCode.MEMBER_ID_REQUIRED)
    assert 20 < given < 64
    assert codes.count(ErrorCode.GROUP_MAX_SIZE_REACHED) == 100 - given
    assert len(shard.group().pending_joins) == given
    shard.advance(SESSION_MS)
    assert shard.join().code == ErrorCode.MEMBER_ID_REQUIRED


def test_member_may_rejoin_without_growth_when_its_group_is_full() -> None:
    shard = GroupShard(plog_group_max_bytes=MIB)
    [asked] = [shard.join_new(protocols=_metadata(900 * KIB))]
    shard.settle()
    joined = asked.response()
    shard.sync(joined, {joined.member_id: b"x"})
    more = shard.join(joined.member_id, protocols=_metadata(MIB))
    assert more.code == ErrorCode.GROUP_MAX_SIZE_REACHED
    again = shard.join(joined.member_id, protocols=_metadata(800 * KIB))
    shard.settle()
    assert again.response().generation_id == 2


def test_returning_static_member_is_refused_when_it_exceeds_the_bound() -> None:
    shard = GroupShard(plog_group_max_bytes=MIB)
    first = shard.join(instance="i", protocols=_metadata(KIB))
    shard.settle()
    member_id = first.response().member_id
    more = shard.join(instance="i", protocols=_metadata(MIB))
    assert more.code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert [*shard.group().members] == [member_id]


def test_assignment_beyond_the_bound_is_refused_and_a_smaller_one_accepted() -> None:
    shard = GroupShard(plog_group_max_bytes=64 * KIB)
    asked = shard.join_new()
    shard.settle()
    joined = asked.response()
    refused = shard.sync(joined, {joined.member_id: bytes(64 * KIB)})
    assert refused.code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert shard.sync(joined, {joined.member_id: b"x"}).response().assignment == b"x"


def test_refused_assignment_leaves_the_group_unchanged() -> None:
    shard = GroupShard(plog_group_max_bytes=64 * KIB)
    asked = shard.join_new()
    shard.settle()
    joined = asked.response()
    assert shard.group().pending_syncs == {joined.member_id}
    for _ in range(2):
        refused = shard.sync(joined, {joined.member_id: bytes(64 * KIB)})
        assert refused.code == ErrorCode.GROUP_MAX_SIZE_REACHED
        # The leader is still late, so it is removed when the rebalance timeout expires.
        assert shard.group().pending_syncs == {joined.member_id}
        assert shard.group().members[joined.member_id].sync is None


# -- all groups -------------------------------------------------------------------------------


def test_groups_beyond_the_total_are_refused_until_others_are_removed() -> None:
    shard = GroupShard(plog_groups_max_bytes=MIB)
    first = shard.join_new(group="a", protocols=_metadata(600 * KIB))
    late = shard.join_new(group="b", protocols=_metadata(600 * KIB))
    assert late.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    shard.settle()
    shard.leave_by_id(first.response().member_id, group="a")
    assert shard.join_new(group="b", protocols=_metadata(600 * KIB)).is_waiting


def test_new_groups_without_members_are_bounded() -> None:
    shard = GroupShard(plog_groups_max_bytes=MIB)
    codes = [shard.join(group=f"g{number}").code for number in range(1000)]
    created = codes.count(ErrorCode.MEMBER_ID_REQUIRED)
    assert 300 < created < 600
    assert codes.count(ErrorCode.COORDINATOR_NOT_AVAILABLE) == 1000 - created
    assert len(shard.groups.group_ids()) == created


def test_groups_with_a_generation_do_not_count_in_the_total() -> None:
    shard = GroupShard(plog_groups_max_bytes=MIB)
    for number in range(1500):
        asked = shard.join_new(group=f"g{number}")
        shard.settle()
        assert shard.leave_by_id(asked.response().member_id, group=f"g{number}") == [0]
    assert shard.memory.used_bytes == 0


def test_waiting_request_counts_once_until_it_ends() -> None:
    memory = _memory()
    release = memory.hold("g", 64 * MIB)
    with pytest.raises(CoordinatorNotAvailable, match=r"plog\.groups\.max\.bytes"):
        memory.hold("h", 1)
    release()
    release()
    assert memory.used_bytes == 0


def test_refused_members_are_reported_once_a_minute_with_a_short_name() -> None:
    ports = SimPorts()
    reports: list[str] = []
    memory = GroupMemory(
        BrokerConfig, ports.clock, lambda text, **fields: reports.append(text.format(**fields))
    )
    for _ in range(3):
        with pytest.raises(CoordinatorNotAvailable):
            memory.hold("g" * 32_000, 65 * MIB)
    assert len(reports) == 1
    assert len(reports[0]) < 500
    ports.advance(60_000)
    with pytest.raises(CoordinatorNotAvailable):
        memory.hold("g", 65 * MIB)
    assert len(reports) == 2


# -- accounting -------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(30))
def test_bytes_match_members_and_pending_ids_after_random_requests(seed: int) -> None:
    chance = random.Random(seed)
    shard = GroupShard(seed=seed, plog_group_max_bytes=64 * KIB, plog_groups_max_bytes=MIB)
    for _ in range(60):
        _do_something(shard, chance)
        assert shard.memory.used_bytes == _bytes_held(shard)
    loaded = shard.reload()
    assert loaded.memory.used_bytes == _bytes_held(loaded, is_loaded=True)
    for one in (shard, loaded):
        one.groups.on_unloaded(CoordinatorNotAvailable())
        assert one.memory.used_bytes == 0


def _do_something(shard: GroupShard, chance: random.Random) -> None:
    group_id = chance.choice("ab")
    group = shard.groups.group(group_id)
    protocols = {
        "range": subscription("t"),
        str(chance.randrange(2)): bytes(chance.randrange(9000)),
    }
    known = [*group.members, *group.pending_joins] if group is not None else []
    member_id = chance.choice(["", *known])
    action = chance.randrange(6)
    if action < 3:
        instance = chance.choice([None, None, "i"])
        if instance is not None:
            member_id = ""
        shard.join(member_id, group=group_id, instance=instance, protocols=protocols)
    elif action == 3:
        shard.leave_by_id(member_id, group=group_id)
    elif action == 4:
        shard.advance(chance.choice([1, 1000, SESSION_MS]))
    elif group is not None and group.leader_id is not None:
        joined = shard.join(group.leader_id, group=group_id)
        shard.settle()
        if not joined.is_waiting and not joined.code:
            assignments = {one: bytes(chance.randrange(9000)) for one in group.members}
            shard.sync(joined.response(), assignments, group=group_id)
    shard.settle()


def _bytes_held(shard: GroupShard, *, is_loaded: bool = False) -> int:
    """Return the bytes that the groups should count, given their contents."""
    nbytes = 0
    for group_id in shard.groups.group_ids():
        group = shard.group(group_id)
        for member in group.members.values():
            nbytes += member.size_bytes + 2 * (len(group_id) + len(member.member_id))
        nbytes += sum(group.pending_bytes(member_id) for member_id in group.pending_joins)
        if group.generation_id == 0 and not is_loaded:
            nbytes += group.unused_bytes
    return nbytes


def test_short_names_are_not_shortened() -> None:
    assert shortened("orders") == "orders"
