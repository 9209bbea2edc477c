"""ListGroups (key 16): the groups that this broker coordinates.

Changes by version:

  1  throttle time
  3  flexible
  4  filter by state; the state of each group (KIP-518)
  5  filter by type; the type of each group (KIP-848)

Versions 1 and 2 are identical.
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Struct, field, int16, int32


class ListGroupsRequest(ApiMessage, api_key=ApiKey.LIST_GROUPS, versions="0-5", flexible="3+"):
    """Filters for the groups to list; an empty filter matches every group."""

    # Not ignorable: in an older version, the broker would return all groups.
    states_filter: list[str] = field("4+")
    types_filter: list[str] = field("5+")


class ListedGroup(Struct):
    """A group; its protocol type is empty if it only has committed offsets."""

    group_id: str = field()
    protocol_type: str = field()
    group_state: str = field("4+", ignorable=True)
    group_type: str = field("5+", ignorable=True)


class ListGroupsResponse(ApiMessage, api_key=ApiKey.LIST_GROUPS, versions="0-5", flexible="3+"):
    """The groups that this broker coordinates."""

    throttle_time_ms: int32 = field("1+", ignorable=True)
    error_code: int16 = field()
    groups: list[ListedGroup] = field()
