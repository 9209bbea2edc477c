"""LeaveGroup (key 13): members leave a group, or an operator removes them.

Changes by version:

  1  throttle time
  3  several members, by member id or by group instance id (KIP-345)
  4  flexible
  5  the reason for leaving (KIP-800)

Versions 1 and 2 are identical.
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Struct, field, int16, int32


class MemberIdentity(Struct):
    """A leaving member; an empty member id means the current owner of the instance id."""

    member_id: str = field("3+")
    group_instance_id: str | None = field("3+", default=None)
    reason: str | None = field("5+", default=None, ignorable=True)


class LeaveGroupRequest(ApiMessage, api_key=ApiKey.LEAVE_GROUP, versions="0-5", flexible="4+"):
    """The leaving members: one up to version 2, a list in version 3 and later."""

    group_id: str = field()
    member_id: str = field("0-2")
    members: list[MemberIdentity] = field("3+")


class MemberResponse(Struct):
    """The result for one member."""

    member_id: str = field("3+")
    group_instance_id: str | None = field("3+")
    error_code: int16 = field("3+")


class LeaveGroupResponse(ApiMessage, api_key=ApiKey.LEAVE_GROUP, versions="0-5", flexible="4+"):
    """The result for each member; up to version 2, only the error code of the response."""

    throttle_time_ms: int32 = field("1+", ignorable=True)
    error_code: int16 = field()
    members: list[MemberResponse] = field("3+")
