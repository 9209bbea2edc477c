"""Scripted members of groups: they join, work, fall silent, leave, and come back.

A member's client takes part in its group for a while, as one member id after the other: it loses
its connection or its answers, sends requests twice, pauses for longer than its session, and goes on
with what it believed before the pause. At times it sends what belongs to a generation that is gone.
Some share a group instance id with another client that is alive, too.

When the work is over, members that are still there go on without faults until their group is
settled: all of them in one generation that gives every partition to one of them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from plog.errors import ErrorCode
from plog.types import TopicPartition
from plog.wire.api_keys import ApiKey
from plog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from plog.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from plog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from plog.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from tests.sim.assigning import (
    NO_GENERATION,
    Assignment,
    divide_anew,
    divide_cooperatively,
    subscription,
)
from tests.sim.checker import Anomaly
from tests.sim.group_client import LOADING, OUT_OF_DATE, TROUBLES, GroupClient
from tests.sim.group_history import Standing, StaticJoin, Who
from tests.sim.network import Connection, ConnectionLost

if TYPE_CHECKING:
    from tests.sim.group_plan import GroupPlan
    from tests.sim.world import World

_FIRST_INSTANCE_IN_JOIN = 5
_FIRST_INSTANCE_IN_SYNC = 3
_FIRST_INSTANCE_IN_HEARTBEAT = 3
_FIRST_INSTANCE_IN_LEAVE = 3
_PAST_KEPT = 4
_SETTLING_MS = 90_000.0
"""Longer than all the timeouts of a group one after the other, and a restart of the broker."""
_DIE_AT_THE_END = 0.3
"""How many of those that are there when the work is over die, for the others to notice."""
EAGER_PROTOCOLS = ("range", "roundrobin")
COOPERATIVE_PROTOCOL = "cooperative-sticky"


class _Fenced(Exception):
    """Another client has our instance id now."""


class _Past(NamedTuple):
    """What a member once was."""

    who: Who
    generation: int
    owned: frozenset[TopicPartition]


class Member(GroupClient):
    """One client of one group; static if it has an `instance`."""

    def __init__(self, world: World, name: str, plan: GroupPlan, instance: str | None) -> None:
        super().__init__(world, name, plan)
        self.instance = instance
        self.owned: frozenset[TopicPartition] = frozenset()
        self.assigned_generation = NO_GENERATION
        """The generation `owned` is of."""
        self.needs_join = True
        self.has_seen_end = False
        """It knows that the work is over."""
        self._end_ms = math.inf
        self._subscription_version = self.chance.choice((2, 3) if plan.is_cooperative else range(4))
        self._eager_protocols = self.chance.sample(EAGER_PROTOCOLS, len(EAGER_PROTOCOLS))
        self._generation = NO_GENERATION
        self._protocol_name: str | None = None
        self._past: list[_Past] = []
        self._static_join: StaticJoin | None = None
        self._accepted: tuple[int, float] = (0, -1.0)
        """The life in which a request of this member id was last accepted, and when it was sent."""
        self._forget()

    @property
    def who(self) -> Who:
        """As which it takes part."""
        return Who(self._member_id, self.instance)

    def _forget(self) -> None:
        """It is no member any more, as far as it knows."""
        self._member_id = ""
        self._static_join = None
        self._lose()

    def _lose(self) -> None:
        """What it owned may be somebody else's."""
        self.needs_join = True
        self.owned = frozenset()
        self._generation = self.assigned_generation = NO_GENERATION
        self._accepted = (0, -1.0)

    # -- the life of a client -----------------------------------------------------------------

    async def run(self) -> None:
        await self.world.sleep(self.chance.uniform(0, self.plan.away_ms))
        while self.world.working:
            if self.plan.is_founded():
                await self._take_part()
            await self.world.sleep(self.chance.uniform(0, self.plan.away_ms))

    async def _take_part(self) -> None:
        self.plan.present.append(self)
        stays = True
        while stays:
            try:
                stays = await self._step()
            except ConnectionLost:
                # A JoinGroup or SyncGroup whose answer is lost: it asks anew.
                self.needs_join = self.needs_join or self.assigned_generation != self._generation
            except _Fenced:
                break
        else:
            await self._go()
        self.plan.present.remove(self)
        self._remember()
        self._forget()

    async def _step(self) -> bool:
        """One thing after the other; False when it has had enough."""
        working = self.world.working
        if not working and not self.has_seen_end:
            self.has_seen_end = True
            self._end_ms = self.world.clock.monotonic_ms() + _SETTLING_MS
            if self.chance.random() < _DIE_AT_THE_END:
                return False
        if not working and self.plan.is_settled():
            return False
        if not working and self.world.clock.monotonic_ms() > self._end_ms:
            raise Anomaly("stuck", f"the group does not settle: {self.plan}")
        if working and not self.needs_join and self.chance.random() < self.plan.quits:
            return False
        if self.needs_join:
            await self._join()
            return True
        await self.world.sleep(self.chance.uniform(0.2, 1) * self.plan.pace_ms)
        how = self.chance.random()
        if how < 0.5 or self.needs_join:
            await self._heartbeat()
        elif how < 0.7:
            await self._commit()
        elif how < 0.8:
            if self.owned:
                await self.read_offsets(sorted(self.owned))
        elif working and not self.plan.is_well_behaved:
            await self._trouble()
        return True

    async def _trouble(self) -> None:
        how = self.chance.random()
        if how < 0.1:  # Garbage collection, a debugger, a laptop that was closed.
            await self.world.sleep(self.plan.session_timeout_ms * self.chance.uniform(0.5, 3))
            if self.chance.random() < 0.5:
                await self._commit()
        elif how < 0.2 and self.connection is not None:
            self.connection.drop()
        elif how < 0.6:
            await self._act_in_the_past()
        elif how < 0.7:
            self.needs_join = True  # Its subscription may have changed, or nothing has.
        elif how < 0.8:
            await self.find_coordinator()

    async def _go(self) -> None:
        """Leave, or just be gone, in one of the ways that happens."""
        is_death = self.has_seen_end and not self.plan.is_settled()
        if is_death or self.chance.random() < 0.5 or not self._member_id:
            if self.connection is not None and self.chance.random() < 0.5:
                self.connection.drop()
            return
        try:
            if self.plan.is_eager and self.chance.random() < 0.5:
                await self._commit()
            await self._leave()
        except (ConnectionLost, _Fenced):
            pass

    def _remember(self) -> None:
        if self.assigned_generation >= 0:
            past = _Past(self.who, self.assigned_generation, self.owned)
            self._past = [*self._past, past][-_PAST_KEPT:]

    # -- joining ------------------------------------------------------------------------------

    async def _join(self) -> None:
        if self.plan.is_eager:
            if self.owned and self.chance.random() < 0.5:
                await self._commit()
            self._remember()
            self.owned = frozenset()
        connection = await self.connected()
        request, version = self._join_request()
        join = None
        if self.instance is not None and not self._member_id:
            join = self.view.joining_statically(self.instance, lambda: connection.over_ms)
            self._static_join = join
        if self._wants_twice():
            self._send_twice(request, version, JoinGroupResponse)
        answer = await self.ask(
            request, version, JoinGroupResponse, connection, self.plan.patience_ms
        )
        code = answer.error_code
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            if self._member_id or self.instance is not None:
                raise Anomaly("unexpected-error", f"{self.name} is given another member id")
            self._member_id = answer.member_id
        elif code:
            self._hear(code, "JoinGroup", (ErrorCode.REBALANCE_IN_PROGRESS,))
            await self.world.sleep(self.chance.uniform(1, 100))
        else:
            self._joined(answer, join)
            await self._sync(connection, answer)

    def _join_request(self) -> tuple[JoinGroupRequest, int]:
        is_static = self.instance is not None
        version = self.version(ApiKey.JOIN_GROUP, _FIRST_INSTANCE_IN_JOIN if is_static else 0)
        generation = self.assigned_generation if self.plan.is_cooperative else NO_GENERATION
        data = subscription(self.plan.topics, self.owned, generation, self._subscription_version)
        names = [COOPERATIVE_PROTOCOL] if self.plan.is_cooperative else self._eager_protocols
        request = JoinGroupRequest(
            group_id=self.plan.name,
            session_timeout_ms=self.plan.session_timeout_ms,
            rebalance_timeout_ms=self.plan.rebalance_timeout_ms,
            member_id=self._member_id,
            group_instance_id=self.instance,
            protocol_type=self.plan.protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=data) for name in names],
            reason="because",
        )
        return request, version

    def _joined(self, answer: JoinGroupResponse, join: StaticJoin | None) -> None:
        if self._member_id not in ("", answer.member_id):
            raise Anomaly("bad-answer", f"{self._member_id} is now called {answer.member_id}")
        self._member_id = answer.member_id
        if join is not None:
            self.view.took_place(self.who, join)
        if self.assigned_generation != self.view.assigned_generation:
            self.owned = frozenset()  # Its leader will not believe that it has it.
        self._generation = answer.generation_id
        self._protocol_name = answer.protocol_name
        self.view.joined(self.who, self._generation, leads=bool(answer.members), held=self.owned)

    # -- syncing ------------------------------------------------------------------------------

    async def _sync(self, connection: Connection, answer: JoinGroupResponse) -> None:
        is_late = self.world.working and not self.plan.is_well_behaved
        if is_late and self.chance.random() < 0.1:
            await self.world.sleep(self.plan.rebalance_timeout_ms * self.chance.random() ** 2 * 1.5)
        await self.world.sleep(self.chance.uniform(0, 10))
        withheld = False
        shares: dict[str, bytes] = {}
        if answer.members and not answer.skip_assignment:
            shares, withheld = self._decide(answer)
        elif answer.skip_assignment and not self.world.working:
            # A static leader that returns gets its old share (KIP-814). In a cooperative group that
            # may be half of a rebalance, which only the leader can complete, as with Kafka.
            withheld = self.plan.is_cooperative
        request, version = self._sync_request(shares)
        standing = self.view.standing(self.who, self._generation)
        if self._wants_twice():
            self._send_twice(request, version, SyncGroupResponse)
        told = await self.ask(
            request, version, SyncGroupResponse, connection, self.plan.patience_ms
        )
        if told.error_code:
            self._hear(told.error_code, f"SyncGroup {standing}", (ErrorCode.REBALANCE_IN_PROGRESS,))
            return
        self.view.accepted(standing, "sync")
        assignment = Assignment.decode(told.assignment)
        self.view.assigned(self.who, self._generation, assignment)
        assert assignment is not None
        before, self.owned = self.owned, frozenset(assignment.partitions)
        self.assigned_generation = self._generation
        # Cooperative: what was taken away is free for others now, so all have to come again.
        self.needs_join = withheld or bool(self.plan.is_cooperative and before - self.owned)
        if self.owned - before:
            await self.read_offsets(sorted(self.owned - before))

    def _decide(self, answer: JoinGroupResponse) -> tuple[dict[str, bytes], bool]:
        """What each member gets, and whether something is kept back."""
        divide = divide_cooperatively if self.plan.is_cooperative else divide_anew
        shares = divide(self.plan.partitions, answer.members)
        self.view.decisions += 1
        encoded = {}
        for member in answer.members:
            assignment = Assignment(
                group=self.plan.name,
                generation=answer.generation_id,
                decision=self.view.decisions,
                member_id=member.member_id,
                partitions=tuple(shares[member.member_id]),
            )
            encoded[member.member_id] = assignment.encode()
        given = sum(len(share) for share in shares.values())
        return encoded, given < len(self.plan.partitions)

    def _sync_request(self, shares: dict[str, bytes]) -> tuple[SyncGroupRequest, int]:
        is_static = self.instance is not None
        version = self.version(ApiKey.SYNC_GROUP, _FIRST_INSTANCE_IN_SYNC if is_static else 0)
        request = SyncGroupRequest(
            group_id=self.plan.name,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self.instance,
            protocol_type=self.plan.protocol_type,
            protocol_name=self._protocol_name or EAGER_PROTOCOLS[0],
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=share)
                for member_id, share in shares.items()
            ],
        )
        return request, version

    # -- working ------------------------------------------------------------------------------

    async def _heartbeat(self) -> None:
        await self.connected()
        standing = self.view.standing(self.who, self._generation, if_loaded=True)
        code = await self._send_heartbeat(standing)
        if code:
            self._hear(code, f"Heartbeat {standing}", (ErrorCode.REBALANCE_IN_PROGRESS,))

    async def _send_heartbeat(self, standing: Standing) -> int:
        who = standing.who
        tells_instance = who.instance is not None and self.chance.random() < 0.9
        version = self.version(
            ApiKey.HEARTBEAT, _FIRST_INSTANCE_IN_HEARTBEAT if tells_instance else 0
        )
        request = HeartbeatRequest(
            group_id=self.plan.name,
            generation_id=standing.generation,
            member_id=who.member_id,
            group_instance_id=who.instance if tells_instance else None,
        )
        # While the group is loaded any heartbeat is answered as if all were well, as by Kafka.
        sent = (self.view.loaded_in, self.world.clock.monotonic_ms())
        answer = await self.ask(request, version, HeartbeatResponse)
        code: int = answer.error_code
        if code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            self.view.accepted(standing, "heartbeat")
            if not code and who == self.who:
                self._accepted = sent
        return code

    async def _commit(self) -> None:
        """Commit some of what it owns, or owned a moment ago."""
        if not self.owned:
            return
        connection = await self.connected()
        chosen = self.chance.sample(sorted(self.owned), self.chance.randint(1, len(self.owned)))
        standing = self.view.standing(self.who, self.assigned_generation)
        commits = self.begin_commits(chosen, connection)
        code = await self.commit(commits, standing, connection)
        if code:
            self._hear(code, f"OffsetCommit {standing}", (ErrorCode.REBALANCE_IN_PROGRESS,))

    async def _act_in_the_past(self) -> None:
        """Send what an earlier self would: it must be refused, or be harmless."""
        if not self._past:
            return
        connection = await self.connected()
        past = self.chance.choice(self._past)
        if past.owned and self.chance.random() < 0.7:
            standing = self.view.standing(past.who, past.generation)
            await self.commit(
                self.begin_commits(sorted(past.owned), connection), standing, connection
            )
            return
        standing = self.view.standing(past.who, past.generation, if_loaded=True)
        allowed = OUT_OF_DATE
        if standing.why_stale is None:
            allowed |= {ErrorCode.REBALANCE_IN_PROGRESS}
        code = await self._send_heartbeat(standing)
        self.check_group_code(code, f"Heartbeat {standing}", allowed)

    async def _leave(self) -> None:
        await self.connected()
        version = self.version(
            ApiKey.LEAVE_GROUP, 0 if self.instance is None else _FIRST_INSTANCE_IN_LEAVE
        )
        identity = MemberIdentity(member_id=self._member_id, group_instance_id=self.instance)
        request = LeaveGroupRequest(group_id=self.plan.name, members=[identity])
        if version < _FIRST_INSTANCE_IN_LEAVE:
            request = LeaveGroupRequest(group_id=self.plan.name, member_id=self._member_id)
        answer = await self.ask(request, version, LeaveGroupResponse)
        code = answer.error_code or next((one.error_code for one in answer.members), 0)
        if code:
            self._hear(code, "LeaveGroup", ())
        else:
            self.view.left(self.who)

    # -- what goes wrong ----------------------------------------------------------------------

    def _hear(self, code: int, what: str, allowed: tuple[ErrorCode, ...]) -> None:
        """An error: it is told to join, to begin anew, or to try again. Raises Anomaly, _Fenced."""
        self.check_group_code(code, what, (*OUT_OF_DATE, *allowed))
        if code == ErrorCode.FENCED_INSTANCE_ID:
            self.view.fenced(self.who, self._static_join)
            raise _Fenced
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._check_was_silent(what)
            self._remember()
            self._forget()
        elif code == ErrorCode.ILLEGAL_GENERATION:
            self._remember()
            self._lose()
        elif code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.needs_join = True
        else:
            assert code == LOADING or code in TROUBLES
            self.needs_join = self.needs_join or self.assigned_generation != self._generation

    def _check_was_silent(self, what: str) -> None:
        """A dynamic member is put out when it was silent for a timeout, not before."""
        life, sent_ms = self._accepted
        due_ms = sent_ms + min(self.plan.session_timeout_ms, self.plan.rebalance_timeout_ms)
        in_time = self.world.clock.monotonic_ms() < due_ms
        if self.instance is None and life == self.world.service.coordinator_life and in_time:
            raise Anomaly("lost-member", f"{self.name} {self.who} was heard of, and is out: {what}")

    def _wants_twice(self) -> bool:
        return self.world.working and self.chance.random() < 0.05

    def _send_twice(
        self,
        request: JoinGroupRequest | SyncGroupRequest,
        version: int,
        answer_type: type[JoinGroupResponse] | type[SyncGroupResponse],
    ) -> None:
        """Send a copy over a connection of its own, and lose the answer."""
        try:
            connection = self.world.network.connect()
        except ConnectionLost:
            return
        if isinstance(request, JoinGroupRequest) and self.instance and not self._member_id:
            self.view.joining_statically(self.instance, lambda: connection.over_ms)
        connection.request(request, version).then(lambda _: None, lambda _: None)
        self.world.timers.call_later(self.chance.uniform(0, 200), connection.drop)
