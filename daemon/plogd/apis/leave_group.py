"""LeaveGroup (key 13): members that go, or that an operator takes out of their group.

Versions served 0-5; from 3 on many members at once, each with its own outcome, by member id or by
group instance id (KIP-345). Before, the one member's error is that of the request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from plogd.apis.context import RequestContext
from plogd.ports import Later

if TYPE_CHECKING:
    from plogd.broker import Broker

_FIRST_BATCHED_VERSION = 3


def handle_leave_group(
    request: LeaveGroupRequest, context: RequestContext, broker: Broker
) -> Later[LeaveGroupResponse]:
    """Take the members out."""
    is_batch = context.version >= _FIRST_BATCHED_VERSION
    members = request.members if is_batch else [MemberIdentity(member_id=request.member_id)]
    left = broker.group_coordinator.write(
        request.group_id, lambda shard: shard.groups.leave(request.group_id, members)
    )
    return left if is_batch else left.map(_of_one)


def _of_one(response: LeaveGroupResponse) -> LeaveGroupResponse:
    [member] = response.members
    return LeaveGroupResponse(error_code=member.error_code)
