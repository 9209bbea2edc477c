"""LeaveGroup: a member goes, so that nobody waits for its session to end."""

from __future__ import annotations

import logging

from plog.client.connection import Connection
from plog.client.coordinator_link import CoordinatorLink
from plog.client.network import Network
from plog.client.time_limit import within
from plog.errors import ErrorCode, KafkaError
from plog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity

log = logging.getLogger("plog.client.group")

LEAVE_TIMEOUT_S = 5.0
"""How long anybody waits for the answer."""
_FIRST_OF_MANY = 3


async def say_goodbye(network: Network, link: CoordinatorLink, member_id: str, reason: str) -> None:
    """Tell the coordinator, once; failing does no harm, the session ends some time later."""

    def request(connection: Connection) -> LeaveGroupRequest:
        if connection.version_of(LeaveGroupRequest) < _FIRST_OF_MANY:
            return LeaveGroupRequest(group_id=link.group_id, member_id=member_id)
        identity = MemberIdentity(member_id=member_id, reason=reason)
        return LeaveGroupRequest(group_id=link.group_id, members=[identity])

    log.info("group %s: %s leaves: %s", link.group_id, member_id, reason)
    try:
        asked = link.ask(request, LeaveGroupResponse)
        answer = await within(network, asked, LEAVE_TIMEOUT_S, "leaving")
    except KafkaError as error:
        log.info("group %s: %s could not leave: %s", link.group_id, member_id, error)
        return
    code = next((member.error_code for member in answer.members), 0) or answer.error_code
    if code:
        log.info("group %s: leaving: %s", link.group_id, ErrorCode(code).name)
