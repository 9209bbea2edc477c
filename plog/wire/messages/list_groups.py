"""ListGroups (key 16): the groups this broker coordinates.

  1  throttle time
  3  flexible
  4  only groups in some states; the state of each (KIP-518)
  5  only groups of some types; the type of each (KIP-848)

Version 2 is like version 1.
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Struct, field, int16, int32


class ListGroupsRequest(ApiMessage, api_key=ApiKey.LIST_GROUPS, versions="0-5", flexible="3+"):
    """Which groups to list; an empty filter lets every group pass."""

    states_filter: list[str] = field("4+")
    types_filter: list[str] = field("5+")


class ListedGroup(Struct):
    """A group; its protocol type is empty when nobody has joined it, only committed offsets."""

    group_id: str = field()
    protocol_type: str = field()
    group_state: str = field("4+", ignorable=True)
    group_type: str = field("5+", ignorable=True)


class ListGroupsResponse(ApiMessage, api_key=ApiKey.LIST_GROUPS, versions="0-5", flexible="3+"):
    """The groups; other brokers may coordinate others."""

    throttle_time_ms: int32 = field("1+", ignorable=True)
    error_code: int16 = field()
    groups: list[ListedGroup] = field()
