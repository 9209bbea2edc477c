"""SyncGroup (key 14): distribute the leader's assignments to the members of a group.

Changes by version:

  1  throttle time
  3  group instance id (KIP-345)
  4  flexible
  5  protocol type and name, which must be those of the generation (KIP-559)

Versions 1 and 2 are identical.
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Struct, field, int16, int32


class SyncGroupRequestAssignment(Struct):
    """The assignment of one member; only members interpret its bytes."""

    member_id: str = field()
    assignment: bytes = field()


class SyncGroupRequest(ApiMessage, api_key=ApiKey.SYNC_GROUP, versions="0-5", flexible="4+"):
    """A member of a generation; only the leader sends `assignments`."""

    group_id: str = field()
    generation_id: int32 = field()
    member_id: str = field()
    group_instance_id: str | None = field("3+", default=None)
    protocol_type: str | None = field("5+", default=None, ignorable=True)
    protocol_name: str | None = field("5+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = field()


class SyncGroupResponse(ApiMessage, api_key=ApiKey.SYNC_GROUP, versions="0-5", flexible="4+"):
    """The assignment of this member."""

    throttle_time_ms: int32 = field("1+", ignorable=True)
    error_code: int16 = field()
    protocol_type: str | None = field("5+", default=None, ignorable=True)
    protocol_name: str | None = field("5+", default=None, ignorable=True)
    assignment: bytes = field()
