"""DescribeGroups (key 15): the state and members of groups; each group has its own error.

Serves versions 0-6.

  3 authorized operations (KIP-430): all of them, because ACLs are not enforced
  6 an unknown group gets GROUP_ID_NOT_FOUND (KIP-1043); earlier versions describe it as Dead
"""

from __future__ import annotations

from typing import Final

from plog.errors import GroupIdNotFound, KafkaError
from plog.wire.lazy_array import lazy_array
from plog.wire.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from plogd.apis.request_context import RequestContext
from plogd.apis.sliced_requests import ask_in_slices
from plogd.broker import Broker
from plogd.coordinator.group.group import GroupState
from plogd.ports import Later, spawn

_FIRST_VERSION_WITH_NOT_FOUND = 6  # KIP-1043.

GROUP_OPERATIONS: Final = 0b1101_0100_1000
"""READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS and ALTER_CONFIGS. The number of each `AclOperation` is
the position of its bit."""


def handle_describe_groups(
    request: DescribeGroupsRequest, context: RequestContext, broker: Broker
) -> Later[DescribeGroupsResponse]:
    """Describe each requested group once, in request order."""
    return spawn(_describe(request, context, broker))


async def _describe(
    request: DescribeGroupsRequest, context: RequestContext, broker: Broker
) -> DescribeGroupsResponse:
    # Without repetitions: describing a large group a thousand times would take gigabytes.
    group_ids = list(dict.fromkeys(request.groups))
    answers = await ask_in_slices(group_ids, lambda group_id: _ask(group_id, broker), broker)

    def described(answered: tuple[str, DescribedGroup | KafkaError]) -> DescribedGroup:
        group_id, group = answered
        if isinstance(group, KafkaError):
            group = _refused(group_id, context, group)
        # As in Kafka, a group with an error keeps the default, which means "not requested".
        if request.include_authorized_operations and group.error_code == 0:
            group.authorized_operations = GROUP_OPERATIONS
        return group

    return DescribeGroupsResponse(
        groups=lazy_array(list(zip(group_ids, answers, strict=True)), described)
    )


def _ask(group_id: str, broker: Broker) -> Later[DescribedGroup]:
    return broker.group_coordinator.read(group_id, lambda shard: shard.groups.describe(group_id))


def _refused(group_id: str, context: RequestContext, error: KafkaError) -> DescribedGroup:
    if not isinstance(error, GroupIdNotFound):
        return DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)
    group = DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
    if context.version >= _FIRST_VERSION_WITH_NOT_FOUND:
        group.error_code, group.error_message = error.code, error.message
    return group


def refuse_describe_groups(
    request: DescribeGroupsRequest, context: RequestContext, error: KafkaError
) -> DescribeGroupsResponse:
    """Reject all groups with `error`."""
    return DescribeGroupsResponse(
        groups=lazy_array(request.groups, lambda group_id: _refused(group_id, context, error))
    )
