"""DescribeGroups (key 15): the state and the members of groups.

Changes by version:

  1  throttle time
  3  authorized operations (KIP-430)
  4  group instance ids (KIP-345)
  5  flexible
  6  error message; an unknown group is GROUP_ID_NOT_FOUND instead of Dead (KIP-1043)

Versions 1 and 2 are identical.
"""

from __future__ import annotations

from typing import Final

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Struct, field, int16, int32

OPERATIONS_NOT_ASKED: Final = -(1 << 31)
"""The value of `authorized_operations` if they were not requested."""


class DescribeGroupsRequest(
    ApiMessage, api_key=ApiKey.DESCRIBE_GROUPS, versions="0-6", flexible="5+"
):
    """Groups to describe."""

    groups: list[str] = field()
    include_authorized_operations: bool = field("3+")


class DescribedGroupMember(Struct):
    """A member; other members interpret its metadata and assignment."""

    member_id: str = field()
    group_instance_id: str | None = field("4+", default=None, ignorable=True)
    client_id: str = field()
    client_host: str = field()
    member_metadata: bytes = field()
    member_assignment: bytes = field()


class DescribedGroup(Struct):
    """A group; `protocol_data` is the name of the protocol its members have chosen."""

    error_code: int16 = field()
    error_message: str | None = field("6+", default=None, ignorable=True)
    group_id: str = field()
    group_state: str = field()
    protocol_type: str = field()
    protocol_data: str = field()
    members: list[DescribedGroupMember] = field()
    authorized_operations: int32 = field("3+", default=OPERATIONS_NOT_ASKED, ignorable=True)


class DescribeGroupsResponse(
    ApiMessage, api_key=ApiKey.DESCRIBE_GROUPS, versions="0-6", flexible="5+"
):
    """The requested groups."""

    throttle_time_ms: int32 = field("1+", ignorable=True)
    groups: list[DescribedGroup] = field()
