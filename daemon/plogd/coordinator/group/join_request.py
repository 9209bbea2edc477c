"""A JoinGroup as the coordinator sees it, and the ids it gives to members.

Source: Kafka 4.0 JoinGroupRequest, ClassicGroup.generateMemberId.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from plog.wire.messages.join_group import JoinGroupRequest
from plogd.coordinator.group.group_memory import protocol_bytes
from plogd.coordinator.group.member import MemberProtocol
from plogd.ports import Random

_REASON_LENGTH_MAX: Final = 255
_PREFIX_LENGTH_MAX: Final = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """A JoinGroup: what it says, whom it is from, and what its version allows."""

    request: JoinGroupRequest
    client_id: str
    client_host: str
    requires_known_member_id: bool
    """Whether a new member has to ask again with the id it is given (KIP-394)."""
    can_skip_assignment: bool
    """Whether a leader can be told to leave the assignment as it is (KIP-814)."""

    @property
    def protocols(self) -> tuple[MemberProtocol, ...]:
        """What the member supports, by preference."""
        return tuple(
            MemberProtocol(protocol.name, protocol.metadata) for protocol in self.request.protocols
        )

    @property
    def protocols_bytes(self) -> int:
        """What its protocols take in memory."""
        return sum(protocol_bytes(one.name, one.metadata) for one in self.request.protocols)

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long it may take to join again; version 0 has only the session timeout."""
        timeout_ms: int = self.request.rebalance_timeout_ms
        return self.request.session_timeout_ms if timeout_ms < 0 else timeout_ms

    @property
    def reason(self) -> str:
        """Why it joins, in its own words (KIP-800)."""
        return (self.request.reason or "not told")[:_REASON_LENGTH_MAX]


def random_member_id(prefix: str, random: Random) -> str:
    """An id nobody has: the client's name for itself, and a random UUID.

    >>> class Chance:
    ...     def random_bytes(self, length): return bytes(range(length))
    >>> random_member_id("rdkafka", Chance())
    'rdkafka-00010203-0405-4607-8809-0a0b0c0d0e0f'
    """
    data = bytearray(random.random_bytes(16))
    data[6] = data[6] & 0x0F | 0x40  # Version 4 of RFC 9562,
    data[8] = data[8] & 0x3F | 0x80  # and its variant.
    text = data.hex()
    uuid = "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
    return f"{prefix[:_PREFIX_LENGTH_MAX]}-{uuid}"
