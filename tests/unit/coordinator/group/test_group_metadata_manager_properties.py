"""No partition has two owners in one generation, whatever clients, disks and clocks do.

Clients behave like consumers: they join, sync, send heartbeats, and rejoin when requested. Some
die, leave, or return with their instance id; the disk is slow or fails; the broker restarts with
the records it has written. At the end, the remaining members share all partitions.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from plog.error_codes import ErrorCode
from plog.errors import CoordinatorNotAvailable, NotCoordinator
from plog.wire.messages.join_group import JoinGroupResponse
from plog.wire.messages.leave_group import MemberIdentity
from tests.helpers.group.group_shard import SESSION_MS, Asked, GroupShard, subscription

PARTITIONS = range(6)
CLIENTS = 5
PROTOCOLS = (
    {"range": subscription("t")},
    {"range": subscription("t"), "sticky": subscription("t")},
    {"range": subscription("u"), "sticky": subscription("t")},
)


class Client:
    """A consumer that performs one action at each call of `step`."""

    def __init__(self, number: int, owners: Owners) -> None:
        self.instance = f"i{number}" if number % 2 else None
        self.owners = owners
        self.protocols = PROTOCOLS[0]
        self.member_id = ""
        self.joined: JoinGroupResponse | None = None
        self.waiting: Asked[Any] | None = None
        self.is_synced = False

    def step(self, shard: GroupShard) -> None:
        """Continue as far as possible without waiting."""
        if self.waiting is not None:
            self._receive()
        elif self.joined is None:
            self.waiting = shard.join(
                self.member_id, instance=self.instance, protocols=self.protocols
            )
        elif not self.is_synced:
            self.waiting = shard.sync(self.joined, self._assign(), instance=self.instance)
        elif shard.heartbeat(self.joined, instance=self.instance) != 0:
            self.rejoin(keep_id=shard.groups.group("g") is not None)

    def _receive(self) -> None:
        assert self.waiting is not None
        if self.waiting.is_waiting:
            return
        waiting, self.waiting = self.waiting, None
        if waiting.code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = waiting.response().member_id
        elif waiting.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.rejoin(keep_id=False)
        elif waiting.code != 0:
            self.rejoin(keep_id=True)
        elif isinstance(waiting.response(), JoinGroupResponse):
            self.joined = waiting.response()
            self.member_id = self.joined.member_id
        else:
            self.is_synced = True
            assert self.joined is not None
            self.owners.assigned(self.joined, waiting.response().assignment)

    def _assign(self) -> dict[str, bytes]:
        assert self.joined is not None
        ids = sorted(member.member_id for member in self.joined.members)
        if self.joined.skip_assignment or not ids:
            return {}
        return {one: bytes(PARTITIONS[n :: len(ids)]) for n, one in enumerate(ids)}

    def rejoin(self, *, keep_id: bool) -> None:
        """Rejoin the group."""
        self.joined = None
        self.is_synced = False
        if not keep_id:
            self.member_id = ""

    def stop(self) -> None:
        """End the process: close its connection and lose its state."""
        if self.waiting is not None and self.waiting.is_waiting:
            self.waiting.later.cancel()
        self.waiting = None
        self.rejoin(keep_id=False)


class Owners:
    """The owners of partitions by generation, as members learned them."""

    def __init__(self) -> None:
        self.by_generation: dict[int, dict[int, str]] = {}

    def assigned(self, joined: JoinGroupResponse, assignment: bytes) -> None:
        """Record a member's assignment. An instance id remains the same owner across restarts."""
        owners = self.by_generation.setdefault(joined.generation_id, {})
        member_id = joined.member_id
        owner = member_id[:2] if member_id.startswith("i") else member_id
        for partition in assignment:
            assert owners.setdefault(partition, owner) == owner, "two owners"


class GroupMachine(RuleBasedStateMachine):
    """Random sequences of actions of clients, disk, clock and broker."""

    def __init__(self) -> None:
        super().__init__()
        self.shard = GroupShard(group_max_size=CLIENTS)
        self.owners = Owners()
        self.clients = [Client(number, self.owners) for number in range(CLIENTS)]

    @rule(who=st.integers(0, CLIENTS - 1), steps=st.integers(1, 6))
    def step(self, who: int, steps: int) -> None:
        for _ in range(steps):
            self.clients[who].step(self.shard)
            self.shard.settle()

    @rule(who=st.integers(0, CLIENTS - 1))
    def step_in_the_same_moment(self, who: int) -> None:
        self.clients[who].step(self.shard)

    @rule()
    def all_step(self) -> None:
        for client in self.clients:
            client.step(self.shard)
        self.shard.settle()

    @rule(who=st.integers(0, CLIENTS - 1), what=st.sampled_from(PROTOCOLS))
    def change_subscription(self, who: int, what: dict[str, bytes]) -> None:
        client = self.clients[who]
        client.protocols = what
        if client.waiting is None:
            client.rejoin(keep_id=True)

    @rule(who=st.integers(0, CLIENTS - 1))
    def stop(self, who: int) -> None:
        self.clients[who].stop()

    @rule(who=st.integers(0, CLIENTS - 1))
    def leave(self, who: int) -> None:
        client = self.clients[who]
        member = MemberIdentity(member_id=client.member_id, group_instance_id=client.instance)
        client.stop()
        self.shard.write(lambda: self.shard.groups.leave("g", [member]))

    @rule(by_ms=st.sampled_from([1, SESSION_MS // 2, SESSION_MS, 10 * SESSION_MS]))
    def time_passes(self, by_ms: int) -> None:
        self.shard.advance(by_ms)

    @rule()
    def disk_is_slow(self) -> None:
        self.shard.hold()

    @rule(fails=st.booleans())
    def disk_is_done(self, fails: bool) -> None:
        self.shard.release(CoordinatorNotAvailable("the disk is full") if fails else None)

    @rule()
    def disk_fails_once(self) -> None:
        self.shard.fail_next = CoordinatorNotAvailable("the disk is full")

    @rule()
    def broker_restarts(self) -> None:
        error = NotCoordinator("the broker stops")
        self.shard.release(error)
        self.shard.groups.on_unloaded(error)
        self.shard = self.shard.reload(group_max_size=CLIENTS)
        for client in self.clients:
            if client.waiting is not None and client.waiting.is_waiting:
                client.waiting = None
                client.rejoin(keep_id=True)

    @invariant()
    def counts_are_right(self) -> None:
        group = self.shard.groups.group("g")
        if group is None:
            return
        members = group.members.values()
        assert group.waiting_joins == sum(member.join is not None for member in members)
        static = [member for member in members if member.is_static]
        assert [group.static_member_id(m.group_instance_id) for m in static] == [
            m.member_id for m in static
        ]
        assert group.is_empty == (not members) or group.state.value == "PreparingRebalance"
        assert group.leader_id is None or group.leader_id in group.members
        assert not group.pending_joins & set(group.members)
        assert group.pending_syncs <= set(group.members)
        for member in members:
            assert member.has_satisfied_heartbeat or self._has_session(member.member_id)

    def _has_session(self, member_id: str) -> bool:
        return self.shard.timers.is_scheduled(f"session 1 g {member_id}")

    def teardown(self) -> None:
        """Let all members behave; then all partitions must be owned and all members take part."""
        self.shard.release()
        self.shard.fail_next = None
        for client in self.clients:
            client.protocols = PROTOCOLS[0]
        for _ in range(15):
            for client in self.clients * 6:
                client.step(self.shard)
                self.shard.settle()
            self.shard.advance(SESSION_MS / 5)
            self.counts_are_right()
        group = self.shard.group()
        assert group.state.value == "Stable"
        assert len(group.members) == CLIENTS
        assert set(self.owners.by_generation[group.generation_id]) == set(PARTITIONS)


TestGroups = GroupMachine.TestCase
TestGroups.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None, report_multiple_bugs=False
)
