"""A member of a group: its protocols, its assignment and its pending requests.

Members are plain data. The methods of group.py change the fields that a group counts, such as
`protocols` and `join`. Source: Kafka 4.0 ClassicGroupMember.
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
"""Estimated memory of a member in addition to the client's data: objects, timers and answers."""

JoinAnswer: TypeAlias = Later[JoinGroupResponse]
SyncAnswer: TypeAlias = Later[SyncGroupResponse]


@dataclass(frozen=True, slots=True)
class MemberProtocol:
    """An assignment protocol that a member supports, with its metadata for the leader."""

    name: str
    metadata: bytes


# Mutable, and therefore compared by identity.
@dataclass(slots=True, kw_only=True, eq=False)
class Member:
    """A member. A `group_instance_id` makes it static: it keeps its assignment across restarts."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[MemberProtocol, ...]
    """Supported protocols in order of preference."""

    assignment: bytes = NO_ASSIGNMENT
    is_new: bool = False
    """Whether the member has not been part of a generation yet."""

    join: JoinAnswer | None = None
    """The pending answer to its JoinGroup, which waits for the other members."""
    sync: SyncAnswer | None = None
    """The pending answer to its SyncGroup, which waits for the leader."""

    @property
    def is_static(self) -> bool:
        """Whether the member has a group instance id."""
        return self.group_instance_id is not None

    @property
    def has_satisfied_heartbeat(self) -> bool:
        """Whether no heartbeat is required, because one of the member's requests is pending."""
        # A new member does not send heartbeats yet. Its client may have crashed, so a pending
        # JoinGroup must not keep the member in the group for longer than NEW_MEMBER_TIMEOUT_MS.
        return not self.is_new and (self.join is not None or self.sync is not None)

    @property
    def protocol_names(self) -> frozenset[str]:
        """The names of its protocols."""
        return frozenset(protocol.name for protocol in self.protocols)

    @property
    def size_bytes(self) -> int:
        """Estimated memory of the member, without the keys of its timers."""
        texts = (self.member_id, self.group_instance_id, self.client_id, self.client_host)
        size_bytes = _MEMBER_BYTES + sum(len(text) for text in texts if text)
        return size_bytes + self.protocols_bytes + len(self.assignment)

    @property
    def protocols_bytes(self) -> int:
        """Estimated memory of its protocols."""
        return sum(protocol_bytes(one.name, one.metadata) for one in self.protocols)

    def metadata(self, protocol_name: str) -> bytes:
        """Return the metadata of a protocol, which the member must support."""
        for protocol in self.protocols:
            if protocol.name == protocol_name:
                return protocol.metadata
        # `Group.supports` has rejected members without a protocol that is common to all.
        raise AssertionError(f"member {self.member_id} does not support {protocol_name}")

    def vote(self, candidates: Collection[str]) -> str:
        """Return the candidate that the member prefers; it must support at least one."""
        for protocol in self.protocols:
            if protocol.name in candidates:
                return protocol.name
        raise AssertionError(
            f"member {self.member_id} does not support any of {sorted(candidates)}"
        )
