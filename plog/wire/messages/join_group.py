"""JoinGroup (key 11): become a member of a group, or take part in its next generation.

Changes by version:

  1  rebalance timeout (KIP-62)
  2  throttle time
  4  a member without an id receives one with MEMBER_ID_REQUIRED and joins again (KIP-394)
  5  group instance id: static membership (KIP-345)
  6  flexible
  7  protocol type in the response; a missing protocol is null instead of empty (KIP-559)
  8  the reason for joining (KIP-800)
  9  the broker can instruct the leader to skip the assignment (KIP-814)

Versions 2 and 3 are identical.
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Struct, field, int16, int32


class JoinGroupRequestProtocol(Struct):
    """A protocol that the member supports, and its metadata for that protocol."""

    name: str = field()
    metadata: bytes = field()


class JoinGroupRequest(ApiMessage, api_key=ApiKey.JOIN_GROUP, versions="0-9", flexible="6+"):
    """A member and its supported protocols, the preferred one first."""

    group_id: str = field()
    session_timeout_ms: int32 = field()
    # In version 0, brokers use the session timeout instead (KIP-62).
    rebalance_timeout_ms: int32 = field("1+", default=-1, ignorable=True)
    member_id: str = field()
    # Not ignorable: in an older version, a static member would silently become a dynamic one.
    group_instance_id: str | None = field("5+", default=None)
    protocol_type: str = field()
    protocols: list[JoinGroupRequestProtocol] = field()
    reason: str | None = field("8+", default=None, ignorable=True)


class JoinGroupResponseMember(Struct):
    """A member and its metadata, for the leader."""

    member_id: str = field()
    group_instance_id: str | None = field("5+", default=None, ignorable=True)
    metadata: bytes = field()


class JoinGroupResponse(ApiMessage, api_key=ApiKey.JOIN_GROUP, versions="0-9", flexible="6+"):
    """The new generation; only the leader receives `members`."""

    throttle_time_ms: int32 = field("2+", ignorable=True)
    error_code: int16 = field()
    generation_id: int32 = field(default=-1)
    protocol_type: str | None = field("7+", default=None, ignorable=True)
    protocol_name: str | None = field(nullable="7+")
    leader: str = field()
    skip_assignment: bool = field("9+")
    member_id: str = field()
    members: list[JoinGroupResponseMember] = field()
