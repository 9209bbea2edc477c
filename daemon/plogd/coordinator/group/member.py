"""One member of a group: what it supports, what it was assigned, and what it is waiting for.

Plain data, changed by group.py, which keeps its counts by it, and by nobody else except for the
assignment and the answer a SyncGroup waits for. Source: Kafka 4.0 ClassicGroupMember.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, TypeAlias

from plog.wire.messages.join_group import JoinGroupResponse
from plog.wire.messages.sync_group import SyncGroupResponse
from plogd.coordinator.group.group_memory import protocol_bytes
from plogd.ports import Later

NO_ASSIGNMENT: Final = b""

_MEMBER_BYTES: Final = 2048
"""What a member takes besides what its client has sent: objects, timers, the answer it awaits."""

JoinAnswer: TypeAlias = Later[JoinGroupResponse]
SyncAnswer: TypeAlias = Later[SyncGroupResponse]


@dataclass(frozen=True, slots=True)
class MemberProtocol:
    """A way of assigning that a member supports, and what it tells the leader with it."""

    name: str
    metadata: bytes


@dataclass(slots=True, kw_only=True, eq=False)
class Member:
    """A member; with a `group_instance_id` a static one, which keeps its place over a restart."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[MemberProtocol, ...]
    """What it supports, the preferred one first."""

    assignment: bytes = NO_ASSIGNMENT
    is_new: bool = False
    """Whether it has not been part of a generation yet."""

    join: JoinAnswer | None = None
    """The answer to its JoinGroup, which waits for the others."""
    sync: SyncAnswer | None = None
    """The answer to its SyncGroup, which waits for the leader."""

    @property
    def is_static(self) -> bool:
        """Whether it has a group instance id."""
        return self.group_instance_id is not None

    @property
    def is_excused(self) -> bool:
        """Whether it need not send heartbeats now, because a request of it waits.

        A new one is not: whether it is still there is only known when it asks again.
        """
        return not self.is_new and (self.join is not None or self.sync is not None)

    @property
    def protocol_names(self) -> frozenset[str]:
        """The names of what it supports."""
        return frozenset(protocol.name for protocol in self.protocols)

    @property
    def size_bytes(self) -> int:
        """About what it takes in memory, without its timers' keys."""
        texts = (self.member_id, self.group_instance_id, self.client_id, self.client_host)
        size_bytes = _MEMBER_BYTES + sum(len(text) for text in texts if text)
        return size_bytes + self.protocols_bytes + len(self.assignment)

    @property
    def protocols_bytes(self) -> int:
        """What its protocols take."""
        return sum(protocol_bytes(one.name, one.metadata) for one in self.protocols)

    def metadata(self, protocol_name: str) -> bytes:
        """What it tells with the protocol, which it has to support."""
        for protocol in self.protocols:
            if protocol.name == protocol_name:
                return protocol.metadata
        raise AssertionError(f"member {self.member_id} does not support {protocol_name}")

    def vote(self, candidates: Collection[str]) -> str:
        """The one of `candidates` it prefers; it has to support one."""
        for protocol in self.protocols:
            if protocol.name in candidates:
                return protocol.name
        raise AssertionError(f"member {self.member_id} supports none of {sorted(candidates)}")
