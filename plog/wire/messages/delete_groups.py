"""DeleteGroups (key 42): delete groups without members, and their committed offsets.

Changes by version:

  2  flexible

Versions 0 and 1 are identical.
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Struct, field, int16, int32


class DeleteGroupsRequest(ApiMessage, api_key=ApiKey.DELETE_GROUPS, versions="0-2", flexible="2+"):
    """Groups to delete."""

    # The spelling is Kafka's, and as_json derives Kafka's name from it.
    groups_names: list[str] = field()


class DeletableGroupResult(Struct):
    """The result for one group."""

    group_id: str = field()
    error_code: int16 = field()


class DeleteGroupsResponse(ApiMessage, api_key=ApiKey.DELETE_GROUPS, versions="0-2", flexible="2+"):
    """The result for each group."""

    throttle_time_ms: int32 = field()
    results: list[DeletableGroupResult] = field()
