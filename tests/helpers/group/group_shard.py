"""The groups of one shard without a log: their records are applied, failed or held back.

    shard = GroupShard()
    a = shard.join("a")               # a JoinGroup that waits, or an outcome
    shard.settle()
    shard.sync(a.response(), {...})

This test double does what the runtime does around the operations of a shard: a result's records are
"appended" immediately, or when `release` is called; `fail_next` makes the next append fail. No call
blocks; `advance` moves the clock.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from plog.errors import KafkaError
from plog.wire.internal.consumer_protocol import (
    ConsumerProtocolSubscription,
    encode_subscription,
)
from plog.wire.messages.heartbeat import HeartbeatRequest
from plog.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from plog.wire.messages.leave_group import LeaveGroupResponse, MemberIdentity
from plog.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from plogd.config import BrokerConfig
from plogd.coordinator.group.group import Group
from plogd.coordinator.group.group_memory import GroupMemory
from plogd.coordinator.group.group_metadata_manager import GroupMetadataManager
from plogd.coordinator.runtime.coordinator_result import CoordinatorRecord, Result
from plogd.ports import Cancelled, Later, Timer
from tests.helpers.sim.sim_ports import SimPorts

T = TypeVar("T")

SESSION_MS = 10_000
REBALANCE_MS = 60_000


def subscription(*topics: str) -> bytes:
    """Return the subscription of a consumer of these topics."""
    return encode_subscription(ConsumerProtocolSubscription(topics=list(topics)), 1)


class Asked(Generic[T]):
    """A request to the shard and its outcome."""

    def __init__(self, later: Later[T]) -> None:
        self.later = later
        self.value: T | None = None
        self.error: Exception | None = None
        later.then(self._succeed, self._fail)

    def _succeed(self, value: T) -> None:
        self.value = value

    def _fail(self, error: Exception) -> None:
        self.error = error

    @property
    def is_waiting(self) -> bool:
        """Whether there is no outcome yet."""
        return self.value is None and self.error is None

    @property
    def code(self) -> int:
        """The error code that the client receives; 0 for none."""
        assert not self.is_waiting, "still waiting"
        if isinstance(self.error, KafkaError):
            return self.error.code
        if self.error is not None:
            raise self.error
        return int(getattr(self.value, "error_code", 0))

    def response(self) -> T:
        """Return the response; raises the error of a failed request."""
        if self.error is not None:
            raise self.error
        assert self.value is not None, "still waiting"
        return self.value

    def leave(self) -> None:
        """Disconnect the client."""
        self.later.cancel()
        assert isinstance(self.error, Cancelled)


class _Timers:
    """`ShardTimers` whose operations are writes of the shard."""

    def __init__(self, ports: SimPorts, write: Callable[[Callable[[], Result[None]]], Any]) -> None:
        self._ports = ports
        self._write = write
        self.scheduled: dict[str, Timer] = {}

    def schedule(self, key: str, delay_ms: float, operation: Callable[[], Result[None]]) -> None:
        self.cancel(key)

        def run() -> None:
            del self.scheduled[key]
            asked = self._write(operation)
            if asked.error is not None:
                raise asked.error

        self.scheduled[key] = self._ports.timers.call_later(delay_ms, run)

    def cancel(self, key: str) -> None:
        timer = self.scheduled.pop(key, None)
        if timer is not None:
            timer.cancel()

    def is_scheduled(self, key: str) -> bool:
        return key in self.scheduled


class GroupShard:
    """The groups of one shard. `settings` are fields of BrokerConfig."""

    def __init__(
        self, records: list[CoordinatorRecord] | None = None, *, seed: int = 0, **settings: Any
    ) -> None:
        self.ports = SimPorts(seed)
        self.config = dataclasses.replace(BrokerConfig(), **settings)
        self.reports = self.ports.reports
        self.timers = _Timers(self.ports, self.write)
        self.memory = GroupMemory(lambda: self.config, self.ports.clock)
        self.groups = GroupMetadataManager(
            self.ports.bundle(),
            memory=self.memory,
            config=lambda: self.config,
            shard_timers=self.timers,
        )
        self.records = list(records or ())
        for record in self.records:
            self._replay(record)
        self.groups.on_loaded()
        self.is_holding = False
        self.fail_next: KafkaError | None = None
        self._held: list[Callable[[KafkaError | None], None]] = []
        self._is_operating = False

    def _replay(self, record: CoordinatorRecord) -> None:
        key: Any = record.key
        value: Any = record.value
        self.groups.replay_group(key, value)

    # -- the runtime's part -------------------------------------------------------------------

    def write(self, operation: Callable[[], Result[T]]) -> Asked[T]:
        """Run an operation."""
        assert not self._is_operating, "an operation within another"
        self._is_operating = True
        try:
            result = operation()
        except KafkaError as error:
            refused: Later[T] = Later()
            refused.fail(error)
            return Asked(refused)
        finally:
            self._is_operating = False
        response = result.response
        answer: Later[T] = Later(response.cancel if isinstance(response, Later) else None)

        def finish(error: KafkaError | None) -> None:
            if error is None:
                self.records += result.records
                if result.appended is not None:
                    result.appended.succeed(None)
            elif result.appended is not None:
                result.appended.fail(error)
            else:
                answer.fail(error)
                return
            if isinstance(response, Later):
                response.then(answer.succeed, answer.fail)
            else:
                answer.succeed(response)

        if self.fail_next is not None and result.records:
            error, self.fail_next = self.fail_next, None
            finish(error)
            return Asked(answer)
        if result.replay:
            for record in result.records:
                self._replay(record)
        if self.is_holding and result.records:
            self._held.append(finish)
        else:
            finish(None)
        return Asked(answer)

    def hold(self) -> None:
        """Make all later appends wait for their disk."""
        self.is_holding = True

    def release(self, error: KafkaError | None = None) -> None:
        """Complete the appends that were held back, or fail them."""
        self.is_holding = False
        held, self._held = self._held, []
        for finish in held:
            finish(error)

    def settle(self) -> None:
        """Run everything that needs no time."""
        self.ports.settle()

    def advance(self, by_ms: float) -> None:
        """Let time pass."""
        self.ports.advance(by_ms)

    def reload(self, **settings: Any) -> GroupShard:
        """Load the state that another broker, or this one after a restart, finds in the log."""
        return GroupShard(self.records, seed=self.ports.random.randrange(1 << 30), **settings)

    # -- requests -----------------------------------------------------------------------------

    def join(
        self,
        member_id: str = "",
        *,
        group: str = "g",
        instance: str | None = None,
        protocols: Mapping[str, bytes] | None = None,
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        version: int = 9,
        client_id: str = "client",
        reason: str | None = None,
    ) -> Asked[JoinGroupResponse]:
        """Send JoinGroup."""
        metadata = {"range": subscription("t")} if protocols is None else protocols
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=n, metadata=m) for n, m in metadata.items()],
            reason=reason,
        )
        return self.write(
            lambda: self.groups.join(
                request,
                client_id,
                "/192.0.2.77",
                requires_known_member_id=version >= 4,
                can_skip_assignment=version >= 9,
            )
        )

    def new_id(self, **fields: Any) -> str:
        """Return the id that a new member receives for its second JoinGroup."""
        return self.join(**fields).response().member_id

    def join_new(self, **fields: Any) -> Asked[JoinGroupResponse]:
        """Join as a new dynamic member does: with two requests."""
        return self.join(self.new_id(**fields), **fields)

    def sync(
        self,
        joined: JoinGroupResponse,
        assignments: Mapping[str, bytes] | None = None,
        *,
        group: str = "g",
        instance: str | None = None,
        **fields: Any,
    ) -> Asked[SyncGroupResponse]:
        """Send SyncGroup for a joined member; `fields` override the request's defaults."""
        request = SyncGroupRequest(
            group_id=group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id=instance,
            protocol_type=joined.protocol_type,
            protocol_name=joined.protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                for member_id, assignment in (assignments or {}).items()
            ],
        )
        for name, value in fields.items():
            setattr(request, name, value)
        return self.write(lambda: self.groups.sync(request))

    def heartbeat(
        self, joined: JoinGroupResponse, *, group: str = "g", instance: str | None = None
    ) -> int:
        """Send Heartbeat; return the error code."""
        request = HeartbeatRequest(
            group_id=group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id=instance,
        )
        return self.write(lambda: self.groups.heartbeat(request)).code

    def leave(self, *members: MemberIdentity, group: str = "g") -> LeaveGroupResponse:
        """Send LeaveGroup."""
        return self.write(lambda: self.groups.leave(group, members)).response()

    def leave_by_id(self, *member_ids: str, group: str = "g") -> list[int]:
        """Send LeaveGroup; return each member's error code."""
        answer = self.leave(*(MemberIdentity(member_id=one) for one in member_ids), group=group)
        return [member.error_code for member in answer.members]

    # -- groups -------------------------------------------------------------------------------

    def group(self, group_id: str = "g") -> Group:
        """Return the group, which must exist."""
        group = self.groups.group(group_id)
        assert group is not None
        return group

    @property
    def state(self) -> str:
        """The state of group g."""
        return self.group().state.value

    def stable(self, count: int = 1, **fields: Any) -> list[JoinGroupResponse]:
        """Bring group g to a stable generation of `count` new members, the leader first.

        Member n is assigned b"n". `fields` are those of `join`; each static member has its own
        `instance`, with its number appended.
        """
        instance = fields.pop("instance", None)
        if instance is None:
            ids = [self.new_id(**fields) for _ in range(count)]
            asked = [self.join(member_id, **fields) for member_id in ids]
        else:
            asked = [self.join(instance=f"{instance}{n}", **fields) for n in range(count)]
        self.settle()
        joined = [one.response() for one in asked]
        return self.complete(joined)

    def complete(self, joined: list[JoinGroupResponse]) -> list[JoinGroupResponse]:
        """Let every member of a generation sync, the leader last; it is first in the list."""
        joined = sorted(joined, key=lambda one: one.member_id != one.leader)
        assignments = {one.member_id: str(n).encode() for n, one in enumerate(joined)}
        followers = [self.sync(one) for one in joined[1:]]
        leader = self.sync(joined[0], assignments)
        for n, asked in enumerate([leader, *followers]):
            assert asked.response().assignment == str(n).encode()
        assert self.state == "Stable"
        return joined

    def rebalance(self, joined: list[JoinGroupResponse], **fields: Any) -> list[JoinGroupResponse]:
        """Let every member of a generation join the next one, and complete it."""
        asked = [self.join(one.member_id, **fields) for one in joined]
        self.settle()
        return self.complete([one.response() for one in asked])
