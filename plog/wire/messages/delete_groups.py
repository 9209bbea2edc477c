"""DeleteGroups (key 42): forget groups that have no members, and the offsets they committed.

  2  flexible

Version 1 is like version 0.
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Struct, field, int16, int32


class DeleteGroupsRequest(ApiMessage, api_key=ApiKey.DELETE_GROUPS, versions="0-2", flexible="2+"):
    """Groups to delete."""

    groups_names: list[str] = field()


class DeletableGroupResult(Struct):
    """A deleted group, or why it was not."""

    group_id: str = field()
    error_code: int16 = field()


class DeleteGroupsResponse(ApiMessage, api_key=ApiKey.DELETE_GROUPS, versions="0-2", flexible="2+"):
    """What became of each."""

    throttle_time_ms: int32 = field()
    results: list[DeletableGroupResult] = field()
