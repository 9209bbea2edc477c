"""LeaveGroup (key 13): members that go, or that an operator takes out of a group.

  1  throttle time
  3  many members at once, by member id or by group instance id (KIP-345)
  4  flexible
  5  the reason for leaving (KIP-800)

Version 2 is like version 1.
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Struct, field, int16, int32


class MemberIdentity(Struct):
    """A member that leaves; an empty member id with an instance id means whoever has that now."""

    member_id: str = field("3+")
    group_instance_id: str | None = field("3+", default=None)
    reason: str | None = field("5+", default=None, ignorable=True)


class LeaveGroupRequest(ApiMessage, api_key=ApiKey.LEAVE_GROUP, versions="0-5", flexible="4+"):
    """Who leaves: one member until version 2, a list from 3 on."""

    group_id: str = field()
    member_id: str = field("0-2")
    members: list[MemberIdentity] = field("3+")


class MemberResponse(Struct):
    """What became of one of them."""

    member_id: str = field("3+")
    group_instance_id: str | None = field("3+")
    error_code: int16 = field("3+")


class LeaveGroupResponse(ApiMessage, api_key=ApiKey.LEAVE_GROUP, versions="0-5", flexible="4+"):
    """What became of each; until version 2 the one member's error is the error of the whole."""

    throttle_time_ms: int32 = field("1+", ignorable=True)
    error_code: int16 = field()
    members: list[MemberResponse] = field("3+")
