"""LeaveGroup (key 13): remove members that leave a group, or that an operator removes from it.

Serves versions 0-5. From version 3, a request identifies one or more members by member id or group
instance id, and each has its own outcome (KIP-345). In earlier versions, a request has only one
member, whose error is at the top level. A member that is listed more than once appears in the
response once.
"""

from __future__ import annotations

from typing import Final

from plog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from plogd.apis.request_context import RequestContext
from plogd.broker import Broker
from plogd.fair_queue import Slices
from plogd.ports import Later, spawn

_FIRST_BATCHED_VERSION = 3  # KIP-345.
_MEMBERS_AT_ONCE: Final = 128
"""Maximum number of members removed by one coordinator operation, which takes one turn."""


def handle_leave_group(
    request: LeaveGroupRequest, context: RequestContext, broker: Broker
) -> Later[LeaveGroupResponse]:
    """Remove the members."""
    if context.version >= _FIRST_BATCHED_VERSION:
        return spawn(_leave_all(request, broker))
    left = _leave(request.group_id, [MemberIdentity(member_id=request.member_id)], broker)
    return left.map(_of_one)


async def _leave_all(request: LeaveGroupRequest, broker: Broker) -> LeaveGroupResponse:
    members: dict[tuple[str, str | None], MemberIdentity] = {}
    async for member in Slices(broker.fair_queue).over(request.members):
        # Removing a member twice would report UNKNOWN_MEMBER_ID for a member that has left.
        members.setdefault((member.member_id, member.group_instance_id), member)
    once = list(members.values())
    # Called even if the request lists no members, because the operation checks the group id.
    response = await _leave(request.group_id, once[:_MEMBERS_AT_ONCE], broker)
    for start in range(_MEMBERS_AT_ONCE, len(once), _MEMBERS_AT_ONCE):
        # A turn of its own, because removing so many members takes a whole turn.
        await broker.fair_queue.turn()
        some = once[start : start + _MEMBERS_AT_ONCE]
        response.members += (await _leave(request.group_id, some, broker)).members
    return response


def _leave(
    group_id: str, members: list[MemberIdentity], broker: Broker
) -> Later[LeaveGroupResponse]:
    return broker.group_coordinator.write(
        group_id, lambda shard: shard.groups.leave(group_id, members)
    )


def _of_one(response: LeaveGroupResponse) -> LeaveGroupResponse:
    [member] = response.members
    return LeaveGroupResponse(error_code=member.error_code)
