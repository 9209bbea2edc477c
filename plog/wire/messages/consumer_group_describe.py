"""ConsumerGroupDescribe (key 69): groups of the consumer protocol (KIP-848).

Changes by version:

  1  the protocol of each member (KIP-1099)
"""

from __future__ import annotations

from typing import Final

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Struct, field, int8, int16, int32, uuid

OPERATIONS_NOT_ASKED: Final = -(1 << 31)
"""The value of `authorized_operations` if they were not requested."""


class ConsumerGroupDescribeRequest(
    ApiMessage, api_key=ApiKey.CONSUMER_GROUP_DESCRIBE, versions="0-1", flexible="0+"
):
    """Groups to describe."""

    group_ids: list[str] = field()
    include_authorized_operations: bool = field()


class TopicPartitions(Struct):
    """Partitions of one topic."""

    topic_id: uuid = field()
    topic_name: str = field()
    partitions: list[int32] = field()


class Assignment(Struct):
    """The current or target assignment of a member."""

    topic_partitions: list[TopicPartitions] = field()


class Member(Struct):
    """A member; `member_type` is 0 for the classic protocol, 1 for the new one, -1 if unknown."""

    member_id: str = field()
    instance_id: str | None = field(default=None)
    rack_id: str | None = field(default=None)
    member_epoch: int32 = field()
    client_id: str = field()
    client_host: str = field()
    subscribed_topic_names: list[str] = field()
    subscribed_topic_regex: str | None = field(default=None)
    assignment: Assignment = field()
    target_assignment: Assignment = field()
    member_type: int8 = field("1+", default=-1, ignorable=True)


class DescribedGroup(Struct):
    """A group, with the epochs of its membership and of its target assignment."""

    error_code: int16 = field()
    error_message: str | None = field(default=None)
    group_id: str = field()
    group_state: str = field()
    group_epoch: int32 = field()
    assignment_epoch: int32 = field()
    assignor_name: str = field()
    members: list[Member] = field()
    authorized_operations: int32 = field(default=OPERATIONS_NOT_ASKED)


class ConsumerGroupDescribeResponse(
    ApiMessage, api_key=ApiKey.CONSUMER_GROUP_DESCRIBE, versions="0-1", flexible="0+"
):
    """The requested groups."""

    throttle_time_ms: int32 = field()
    groups: list[DescribedGroup] = field()
