"""SyncGroup (key 14): the leader tells who gets what, the others hear what they have got.

  1  throttle time
  3  group instance id (KIP-345)
  4  flexible
  5  protocol type and name, which have to be those of the generation (KIP-559)

Version 2 is like version 1.
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Struct, field, int16, int32


class SyncGroupRequestAssignment(Struct):
    """What one member gets; only members of the group know what the bytes mean."""

    member_id: str = field()
    assignment: bytes = field()


class SyncGroupRequest(ApiMessage, api_key=ApiKey.SYNC_GROUP, versions="0-5", flexible="4+"):
    """A member of a generation; `assignments` comes from its leader."""

    group_id: str = field()
    generation_id: int32 = field()
    member_id: str = field()
    group_instance_id: str | None = field("3+", default=None)
    protocol_type: str | None = field("5+", default=None, ignorable=True)
    protocol_name: str | None = field("5+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = field()


class SyncGroupResponse(ApiMessage, api_key=ApiKey.SYNC_GROUP, versions="0-5", flexible="4+"):
    """What this member gets."""

    throttle_time_ms: int32 = field("1+", ignorable=True)
    error_code: int16 = field()
    protocol_type: str | None = field("5+", default=None, ignorable=True)
    protocol_name: str | None = field("5+", default=None, ignorable=True)
    assignment: bytes = field()
