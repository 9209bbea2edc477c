"""Leave a group explicitly, so that the other members need not wait for the session to expire."""

from __future__ import annotations

import logging

from plog.client.group.coordinator_connection import CoordinatorConnection
from plog.client.group.member_state import Membership, MemberState
from plog.client.network.connection import Connection
from plog.client.network.deadline import Deadline
from plog.client.network.ports import Network
from plog.errors import ErrorCode, KafkaError
from plog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity

log = logging.getLogger("plog.client.group")

LEAVE_TIMEOUT_S = 5.0
"""The default timeout for the response."""
LEAVE_RESERVE_S = 0.5
"""The part of a consumer's close timeout that is reserved for LeaveGroup after the last commit."""
# Even after the deadline, this is enough time to send LeaveGroup without waiting for the response.
_MINIMUM_S = 0.01
# From version 3 on, a request can contain many members (KIP-345).
_FIRST_OF_MANY = 3


async def leave_group(
    network: Network,
    link: CoordinatorConnection,
    membership: Membership,
    reason: str,
    deadline: Deadline | None = None,
) -> None:
    """End the membership and send LeaveGroup if the coordinator is reachable."""
    generation = membership.generation
    was_known = membership.state is not MemberState.UNJOINED and generation.member_id
    # Reset the membership before sending: in the meantime, no heartbeat or commit may use the
    # generation.
    membership.reset("consumer pro-actively leaving the group", keeps_member_id=False)
    # KIP-345: a static member keeps its place in the group until its session expires, so that a
    # restart does not cause a rebalance.
    if was_known and link.is_known and generation.group_instance_id is None:
        deadline = deadline or Deadline(network, LEAVE_TIMEOUT_S)
        await send_leave_group(network, link, generation.member_id, reason, deadline)


async def send_leave_group(
    network: Network, link: CoordinatorConnection, member_id: str, reason: str, deadline: Deadline
) -> None:
    """Send LeaveGroup once; failures are only logged."""

    def request(connection: Connection) -> LeaveGroupRequest:
        if connection.version_of(LeaveGroupRequest) < _FIRST_OF_MANY:
            return LeaveGroupRequest(group_id=link.group_id, member_id=member_id)
        identity = MemberIdentity(member_id=member_id, reason=reason)
        return LeaveGroupRequest(group_id=link.group_id, members=[identity])

    # If no time is left, still send the request: other members benefit from it.
    if deadline.is_over:
        deadline = Deadline(network, _MINIMUM_S)
    log.info("group %s: member %s is leaving: %s", link.group_id, member_id, reason)
    try:
        answer = await link.ask(request, LeaveGroupResponse, deadline=deadline)
    except KafkaError as error:
        # The error is harmless: the coordinator removes the member when its session expires.
        log.info("group %s: member %s failed to leave: %s", link.group_id, member_id, error)
        return
    # Before version 3, a response contains only one error code.
    code = next((member.error_code for member in answer.members), 0) or answer.error_code
    if code:
        log.info("group %s: LeaveGroup failed: %s", link.group_id, ErrorCode(code).name)
