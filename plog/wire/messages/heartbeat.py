"""Heartbeat (key 12): keep a member's session in a group alive.

Changes by version:

  1  throttle time
  3  group instance id (KIP-345)
  4  flexible

Versions 1 and 2 are identical.
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, field, int16, int32


class HeartbeatRequest(ApiMessage, api_key=ApiKey.HEARTBEAT, versions="0-4", flexible="4+"):
    """A member and its generation."""

    group_id: str = field()
    generation_id: int32 = field()
    member_id: str = field()
    group_instance_id: str | None = field("3+", default=None)


class HeartbeatResponse(ApiMessage, api_key=ApiKey.HEARTBEAT, versions="0-4", flexible="4+"):
    """An error code; REBALANCE_IN_PROGRESS means that the member must join again."""

    throttle_time_ms: int32 = field("1+", ignorable=True)
    error_code: int16 = field()
