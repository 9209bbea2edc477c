"""Heartbeat (key 12): a member of a group is alive.

  1  throttle time
  3  group instance id (KIP-345)
  4  flexible

Version 2 is like version 1.
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, field, int16, int32


class HeartbeatRequest(ApiMessage, api_key=ApiKey.HEARTBEAT, versions="0-4", flexible="4+"):
    """A member, and the generation it takes part in."""

    group_id: str = field()
    generation_id: int32 = field()
    member_id: str = field()
    group_instance_id: str | None = field("3+", default=None)


class HeartbeatResponse(ApiMessage, api_key=ApiKey.HEARTBEAT, versions="0-4", flexible="4+"):
    """Whether all is well; REBALANCE_IN_PROGRESS asks the member to join again."""

    throttle_time_ms: int32 = field("1+", ignorable=True)
    error_code: int16 = field()
