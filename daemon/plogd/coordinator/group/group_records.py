"""A group as a record of `__consumer_offsets`, and back.

What is written is what members need to go on after a restart: the generation, its leader and
protocol, and of each member its timeouts, metadata and assignment. Who waits for what, which ids
are pending, and what else a member supports is not.

Source: Kafka 4.0 GroupCoordinatorRecordHelpers, GroupMetadataManager.replay.
"""

from __future__ import annotations

from collections.abc import Mapping

from plog.errors import InvalidRecord
from plog.wire.internal.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)
from plogd.coordinator.group.group import EMPTY, STABLE, Group
from plogd.coordinator.group.member import Member, MemberProtocol
from plogd.coordinator.runtime.coordinator_result import CoordinatorRecord


def group_record(group: Group, assignments: Mapping[str, bytes]) -> CoordinatorRecord:
    """The record of the group as it is, with these assignments by member id."""
    members = []
    if group.members:
        assert group.protocol_name is not None, f"{group} has members but no protocol"
        members = [
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(group.protocol_name),
                assignment=assignments[member.member_id],
            )
            for member in group.members.values()
        ]
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=group.protocol_name,
        leader=group.leader_id,
        current_state_timestamp=-1 if group.state_since_ms is None else group.state_since_ms,
        members=members,
    )
    return CoordinatorRecord(GroupMetadataKey(group=group.group_id), value)


def new_group_record(group: Group) -> CoordinatorRecord:
    """The first record of a group nobody is a durable member of yet."""
    value = GroupMetadataValue(
        protocol_type="",
        protocol=None,
        leader=None,
        current_state_timestamp=-1 if group.state_since_ms is None else group.state_since_ms,
    )
    return CoordinatorRecord(GroupMetadataKey(group=group.group_id), value)


def group_tombstone(group_id: str) -> CoordinatorRecord:
    """The record that the group is gone."""
    return CoordinatorRecord(GroupMetadataKey(group=group_id), None)


def group_from_record(group_id: str, value: GroupMetadataValue) -> Group:
    """Return the group that was written, without requests in progress and with fresh sessions.

    Raises InvalidRecord if no group can be like that.
    """
    _check_members(group_id, value)
    is_led = any(member.member_id == value.leader for member in value.members)
    since_ms = value.current_state_timestamp
    group = Group(
        group_id,
        state=STABLE if value.members else EMPTY,
        state_since_ms=None if since_ms == -1 else since_ms,
        generation_id=value.generation,
        protocol_type=value.protocol_type or None,
        protocol_name=value.protocol,
        leader_id=value.leader if is_led else None,  # Otherwise the first member leads.
    )
    for member in value.members:
        loaded = Member(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout_ms=(
                member.session_timeout if member.rebalance_timeout < 0 else member.rebalance_timeout
            ),
            session_timeout_ms=member.session_timeout,
            protocols=(MemberProtocol(value.protocol or "", member.subscription),),
            assignment=member.assignment,
        )
        group.add(loaded, value.protocol_type)
    group.find_subscribed_topics()
    return group


def _check_members(group_id: str, value: GroupMetadataValue) -> None:
    member_ids = {member.member_id for member in value.members}
    instance_ids = [
        member.group_instance_id for member in value.members if member.group_instance_id is not None
    ]
    if len(member_ids) < len(value.members) or len(set(instance_ids)) < len(instance_ids):
        raise InvalidRecord(f"group {group_id}: two members have the same id")
    if value.members and value.protocol is None:
        raise InvalidRecord(f"group {group_id}: members without a protocol")
