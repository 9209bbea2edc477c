"""Responses to a group's members.

Source: Kafka 4.0 GroupMetadataManager; KIP-559, 814.
"""

from __future__ import annotations

from plog.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from plog.wire.messages.sync_group import SyncGroupResponse
from plogd.coordinator.group.group import Group
from plogd.coordinator.group.member import Member


def join_group_response(
    group: Group, member_id: str, *, skip_assignment: bool = False
) -> JoinGroupResponse:
    """Return a JoinGroup response: the generation and, for its leader, all members."""
    assert group.protocol_name is not None
    # Only the leader computes the assignment, so only its response lists the members.
    members = []
    if member_id == group.leader_id:
        members = [
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata(group.protocol_name),
            )
            for member in group.members.values()
        ]
    return JoinGroupResponse(
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
        skip_assignment=skip_assignment,
        member_id=member_id,
        members=members,
    )


def sync_group_response(group: Group, member: Member) -> SyncGroupResponse:
    """Return a SyncGroup response with the member's assignment."""
    return SyncGroupResponse(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=member.assignment,
    )


def fail_pending(member: Member, error: Exception) -> None:
    """Fail a member's pending requests, because the member or its group was removed."""
    # Cleared before they fail, because a callback may handle the client's next request. Not with
    # `Group.set_join`: the group no longer counts this member.
    join, member.join = member.join, None
    sync, member.sync = member.sync, None
    if join is not None:
        join.fail(error)
    if sync is not None:
        sync.fail(error)
