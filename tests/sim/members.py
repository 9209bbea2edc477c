"""Scripted group members: they join, consume, commit, pause, leave and return.

A member's client participates in its group for a while, with successive member ids: it loses
connections or responses, sends requests twice, pauses for longer than its session timeout, and then
continues with the state it had before the pause. Occasionally it sends requests of an older
generation. Some clients share a group instance id with another running client.

When the work is finished, the remaining members continue without faults until their group is
settled: all of them in one generation that assigns every partition to one of them.
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
    divide_cooperatively,
    divide_eagerly,
    subscription,
)
from tests.sim.checker import Anomaly
from tests.sim.group_client import LOADING, OUT_OF_DATE, TROUBLES, GroupClient
from tests.sim.group_history import Membership, Standing, StaticJoin
from tests.sim.network import Connection, ConnectionLost

if TYPE_CHECKING:
    from tests.sim.group_plan import GroupPlan
    from tests.sim.world import World

_FIRST_INSTANCE_IN_JOIN = 5
_FIRST_INSTANCE_IN_SYNC = 3
_FIRST_INSTANCE_IN_HEARTBEAT = 3
_FIRST_INSTANCE_IN_LEAVE = 3
_PAST_KEPT = 4
_REBALANCING = (ErrorCode.REBALANCE_IN_PROGRESS,)
_SETTLING_MS = 90_000.0
"""Longer than the sum of all timeouts of a group and a restart of the broker."""
_DIE_AT_THE_END = 0.3
"""The share of the remaining members that die at the end, for the others to detect."""
EAGER_PROTOCOLS = ("range", "roundrobin")
COOPERATIVE_PROTOCOL = "cooperative-sticky"


class _Fenced(Exception):
    """Another client has taken over this member's instance id."""


class _LeftOut(Exception):
    """This member received no assignment; Kafka's consumer fails then."""


class _Past(NamedTuple):
    """A former state of a member."""

    membership: Membership
    generation: int
    owned: frozenset[TopicPartition]


class Member(GroupClient):
    """One client of one group; static if it has an `instance`."""

    def __init__(self, world: World, name: str, plan: GroupPlan, instance: str | None) -> None:
        super().__init__(world, name, plan)
        self.instance = instance
        self.owned: frozenset[TopicPartition] = frozenset()
        self.assigned_generation = NO_GENERATION
        """The generation in which `owned` was assigned."""
        self.needs_join = True
        self.has_seen_end = False
        """It has noticed that the work is finished."""
        self._end_ms = math.inf
        self._subscription_version = self.chance.choice((2, 3) if plan.is_cooperative else range(4))
        self._eager_protocols = self.chance.sample(EAGER_PROTOCOLS, len(EAGER_PROTOCOLS))
        self._generation = NO_GENERATION
        self._protocol_name: str | None = None
        self._past: list[_Past] = []
        self._static_join: StaticJoin | None = None
        self._accepted: tuple[int, float] = (0, -1.0)
        """The life in which a request of this member id was last accepted, and when it was sent."""
        self._reset()

    @property
    def membership(self) -> Membership:
        """The identity that it uses in the group."""
        return Membership(self._member_id, self.instance)

    def _reset(self) -> None:
        """Become a client without a member id."""
        self._member_id = ""
        self._static_join = None
        self._revoke_all()

    def _revoke_all(self) -> None:
        """Give up all partitions: another member may own them now."""
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
                # The response to a JoinGroup or SyncGroup was lost: join again.
                self.needs_join = self.needs_join or self.assigned_generation != self._generation
            except _LeftOut:
                stays = False
            except _Fenced:
                break
        else:
            await self._go()
        self.plan.present.remove(self)
        self._remember()
        self._reset()

    async def _step(self) -> bool:
        """Perform one random action; return False when the member should leave."""
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
        if how < 0.1:  # A pause, as caused by garbage collection, a debugger or a suspended laptop.
            await self.world.sleep(self.plan.session_timeout_ms * self.chance.uniform(0.5, 3))
            if self.chance.random() < 0.5:
                await self._commit()
        elif how < 0.2 and self.connection is not None:
            self.connection.drop()
        elif how < 0.6:
            await self._act_in_the_past()
        elif how < 0.7:
            self.needs_join = True  # The subscription may or may not have changed.
        elif how < 0.8:
            await self.find_coordinator()

    async def _go(self) -> None:
        """Leave the group, or disappear, in one of several ways."""
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
            past = _Past(self.membership, self.assigned_generation, self.owned)
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
            join = self.view.sending_static_join(
                self.instance, lambda: connection.over_ms, self.life(connection)
            )
            self._static_join = join
        if self._wants_twice():
            self._send_twice(request, version, connection)
        known = self.view.assigned_generation
        answer, life = await self.ask_coordinator(
            request, version, JoinGroupResponse, connection, self.plan.patience_ms
        )
        code = answer.error_code
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            if self._member_id or self.instance is not None:
                raise Anomaly("unexpected-error", f"{self.name} receives another member id")
            self._member_id = answer.member_id
        elif code:
            self._handle_error(code, "JoinGroup", life, _REBALANCING)
            await self.world.sleep(self.chance.uniform(1, 100))
        else:
            self._joined(answer, join, life, known)
            await self._sync(connection, answer, life)

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

    def _joined(
        self, answer: JoinGroupResponse, join: StaticJoin | None, life: int | None, known: int
    ) -> None:
        if self._member_id not in ("", answer.member_id):
            raise Anomaly("bad-answer", f"{self._member_id} now has the id {answer.member_id}")
        self._member_id = answer.member_id
        if join is not None:
            self.view.static_join_answered(self.membership, join, life)
        if self.assigned_generation != self.view.assigned_generation:
            self.owned = frozenset()  # The leader would not accept its claim to these partitions.
        self._generation = answer.generation_id
        self._protocol_name = answer.protocol_name
        self.view.joined(
            self.membership,
            self._generation,
            life=life,
            known=known,
            leads=bool(answer.members),
            held=self.owned,
        )

    # -- syncing ------------------------------------------------------------------------------

    async def _sync(
        self, connection: Connection, answer: JoinGroupResponse, joined_in: int | None
    ) -> None:
        is_late = self.world.working and not self.plan.is_well_behaved
        if is_late and self.chance.random() < 0.1:
            await self.world.sleep(self.plan.rebalance_timeout_ms * self.chance.random() ** 2 * 1.5)
        await self.world.sleep(self.chance.uniform(0, 10))
        withheld = False
        shares: dict[str, bytes] = {}
        if answer.members and not answer.skip_assignment:
            shares, withheld = self._decide(answer, joined_in)
        elif answer.skip_assignment and not self.world.working:
            # A returning static leader keeps its previous assignment (KIP-814). In a cooperative
            # group this may interrupt a rebalance that only the leader can complete, as in Kafka.
            withheld = self.plan.is_cooperative
        request, version = self._sync_request(shares)
        standing = self.standing(self.membership, self._generation, connection)
        if self._wants_twice():
            self._send_twice(request, version, connection)
        response, life = await self.ask_coordinator(
            request, version, SyncGroupResponse, connection, self.plan.patience_ms
        )
        if response.error_code:
            self._handle_error(response.error_code, f"SyncGroup {standing}", life, _REBALANCING)
            return
        self.view.accepted(standing, "sync", life)
        assignment = Assignment.decode(response.assignment)
        self.view.assigned(self.membership, self._generation, assignment, life)
        if assignment is None:
            raise _LeftOut
        before, self.owned = self.owned, frozenset(assignment.partitions)
        self.assigned_generation = self._generation
        # Cooperative: revoked partitions are free now, so all members must join again.
        self.needs_join = withheld or bool(self.plan.is_cooperative and before - self.owned)
        if self.owned - before:
            await self.read_offsets(sorted(self.owned - before))

    def _decide(self, answer: JoinGroupResponse, life: int | None) -> tuple[dict[str, bytes], bool]:
        """Return each member's share, and whether any partition is left unassigned."""
        divide = divide_cooperatively if self.plan.is_cooperative else divide_eagerly
        shares = divide(self.plan.partitions, answer.members)
        decision = self.view.decides(life, answer.generation_id, shares)
        encoded = {}
        for member in answer.members:
            assignment = Assignment(
                group=self.plan.name,
                generation=answer.generation_id,
                decision=decision,
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
        connection = await self.connected()
        standing = self.standing(self.membership, self._generation, connection, if_loaded=True)
        code, life = await self._send_heartbeat(standing, connection)
        if code:
            self._handle_error(code, f"Heartbeat {standing}", life, _REBALANCING)

    async def _send_heartbeat(
        self, standing: Standing, connection: Connection
    ) -> tuple[int, int | None]:
        membership = standing.membership
        tells_instance = membership.instance is not None and self.chance.random() < 0.9
        version = self.version(
            ApiKey.HEARTBEAT, _FIRST_INSTANCE_IN_HEARTBEAT if tells_instance else 0
        )
        request = HeartbeatRequest(
            group_id=self.plan.name,
            generation_id=standing.generation,
            member_id=membership.member_id,
            group_instance_id=membership.instance if tells_instance else None,
        )
        # While the group is loading, every heartbeat succeeds, as in Kafka.
        sent = (self.view.loaded_in, self.world.clock.monotonic_ms())
        answer, life = await self.ask_coordinator(request, version, HeartbeatResponse, connection)
        code: int = answer.error_code
        if code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            self.view.accepted(standing, "heartbeat", life)
            if not code and membership == self.membership and life is not None:
                self._accepted = sent
        return code, life

    async def _commit(self) -> None:
        """Commit offsets of partitions that it owns, or owned until a moment ago."""
        if not self.owned:
            return
        connection = await self.connected()
        chosen = self.chance.sample(sorted(self.owned), self.chance.randint(1, len(self.owned)))
        standing = self.standing(self.membership, self.assigned_generation, connection)
        commits = self.begin_commits(chosen, connection)
        code, life = await self.commit(commits, standing, connection)
        if code:
            self._handle_error(code, f"OffsetCommit {standing}", life, _REBALANCING)

    async def _act_in_the_past(self) -> None:
        """Send a request of a former state: it must be rejected or have no effect."""
        if not self._past:
            return
        connection = await self.connected()
        past = self.chance.choice(self._past)
        if past.owned and self.chance.random() < 0.7:
            standing = self.standing(past.membership, past.generation, connection)
            await self.commit(
                self.begin_commits(sorted(past.owned), connection), standing, connection
            )
            return
        standing = self.standing(past.membership, past.generation, connection, if_loaded=True)
        code, life = await self._send_heartbeat(standing, connection)
        allowed = OUT_OF_DATE
        if not standing.binds(life):
            allowed |= {ErrorCode.REBALANCE_IN_PROGRESS}
        self.check_group_code(code, f"Heartbeat {standing}", allowed, life=life)

    async def _leave(self) -> None:
        connection = await self.connected()
        version = self.version(
            ApiKey.LEAVE_GROUP, 0 if self.instance is None else _FIRST_INSTANCE_IN_LEAVE
        )
        identity = MemberIdentity(member_id=self._member_id, group_instance_id=self.instance)
        request = LeaveGroupRequest(group_id=self.plan.name, members=[identity])
        if version < _FIRST_INSTANCE_IN_LEAVE:
            request = LeaveGroupRequest(group_id=self.plan.name, member_id=self._member_id)
        answer, life = await self.ask_coordinator(request, version, LeaveGroupResponse, connection)
        code = answer.error_code or next((one.error_code for one in answer.members), 0)
        if code:
            self._handle_error(code, "LeaveGroup", life)
        else:
            self.view.left(self.membership, life)

    # -- errors -------------------------------------------------------------------------------

    def _handle_error(
        self, code: int, what: str, life: int | None, allowed: tuple[ErrorCode, ...] = ()
    ) -> None:
        """Handle an error: join again, with or without the id, or retry. May raise _Fenced."""
        self.check_group_code(code, what, (*OUT_OF_DATE, *allowed), life=life)
        if code == ErrorCode.FENCED_INSTANCE_ID:
            self.view.fenced(self.membership, self._static_join, life)
            raise _Fenced
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._check_was_silent(what, life)
            self._remember()
            self._reset()
        elif code == ErrorCode.ILLEGAL_GENERATION:
            self._remember()
            self._revoke_all()
        elif code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.needs_join = True
        else:
            assert code == LOADING or code in TROUBLES
            self.needs_join = self.needs_join or self.assigned_generation != self._generation

    def _check_was_silent(self, what: str, life: int | None) -> None:
        """Check that a dynamic member was removed only after a timeout without requests."""
        accepted_in, sent_ms = self._accepted
        timeout_ms = min(self.plan.session_timeout_ms, self.plan.rebalance_timeout_ms)
        due_ms = sent_ms + timeout_ms * (1 - self.world.clock_drift)
        in_time = self.world.clock.monotonic_ms() < due_ms
        if self.instance is None and life is not None and life == accepted_in and in_time:
            raise Anomaly(
                "lost-member",
                f"{self.name} {self.membership} was removed before its timeout: {what}",
            )

    def _wants_twice(self) -> bool:
        return self.world.working and self.chance.random() < 0.05

    def _send_twice(
        self,
        request: JoinGroupRequest | SyncGroupRequest,
        version: int,
        other: Connection,
    ) -> None:
        """Send a copy over a separate connection to the same broker, and ignore the response."""
        try:
            connection = self.connect_again(other)
        except ConnectionLost:
            return
        if isinstance(request, JoinGroupRequest) and self.instance and not self._member_id:
            self.view.sending_static_join(
                self.instance, lambda: connection.over_ms, self.life(connection)
            )
        connection.request(request, version).then(lambda _: None, lambda _: None)
        self.world.timers.call_later(self.chance.uniform(0, 200), connection.drop)
