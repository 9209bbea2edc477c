"""A JoinGroup request with its connection's context, and the generation of member ids.

Source: Kafka 4.0 JoinGroupRequest, ClassicGroup.generateMemberId.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from plog.wire.messages.join_group import JoinGroupRequest
from plogd.coordinator.group.group_memory import protocol_bytes
from plogd.coordinator.group.member import MemberProtocol
from plogd.ports import Random

_REASON_LENGTH_MAX: Final = 255  # As in Kafka's JoinGroupRequest (KIP-800).
# A client id can have 32,767 characters, and clients repeat the member id in every heartbeat.
_PREFIX_LENGTH_MAX: Final = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """A JoinGroup request, its client, and the features of its version."""

    request: JoinGroupRequest
    client_id: str
    client_host: str
    requires_known_member_id: bool
    """Whether a new member must join again with its assigned id (KIP-394)."""
    can_skip_assignment: bool
    """Whether the response can instruct a leader to skip the assignment (KIP-814)."""

    @property
    def protocols(self) -> tuple[MemberProtocol, ...]:
        """The member's protocols, in order of preference."""
        return tuple(
            MemberProtocol(protocol.name, protocol.metadata) for protocol in self.request.protocols
        )

    @property
    def protocols_bytes(self) -> int:
        """Estimated memory of the protocols."""
        return sum(protocol_bytes(one.name, one.metadata) for one in self.request.protocols)

    @property
    def rebalance_timeout_ms(self) -> int:
        """Time allowed for joining a rebalance; in version 0, this is the session timeout."""
        timeout_ms: int = self.request.rebalance_timeout_ms
        return self.request.session_timeout_ms if timeout_ms < 0 else timeout_ms

    @property
    def reason(self) -> str:
        """The client's reason for joining (KIP-800)."""
        return (self.request.reason or "not provided")[:_REASON_LENGTH_MAX]


def random_member_id(prefix: str, random: Random) -> str:
    """Return a unique id: the prefix, usually the client id, and a random UUID.

    >>> class Chance:
    ...     def random_bytes(self, length): return bytes(range(length))
    >>> random_member_id("rdkafka", Chance())
    'rdkafka-00010203-0405-4607-8809-0a0b0c0d0e0f'
    """
    data = bytearray(random.random_bytes(16))
    data[6] = data[6] & 0x0F | 0x40  # UUID version 4 (RFC 9562).
    data[8] = data[8] & 0x3F | 0x80  # The variant of RFC 9562.
    text = data.hex()
    uuid = "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
    return f"{prefix[:_PREFIX_LENGTH_MAX]}-{uuid}"
