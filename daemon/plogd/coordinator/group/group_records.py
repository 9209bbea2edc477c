"""Convert between groups and records of `__consumer_offsets`.

A record holds the state that members need to continue after a restart: the generation, its leader
and protocol, and each member's timeouts, metadata and assignment. Delayed requests, pending member
ids and the members' other protocols are not written.

`check_group_record` checks records that clients, such as Kafka's tools, produce to the topic. If a
record could not be replayed, loading would skip it, so the broker rejects the record. The check can
run on any thread: jobs of replica/append_queue.py call it for each record.

Source: Kafka 4.0 GroupCoordinatorRecordHelpers, GroupMetadataManager.replay.
"""

from __future__ import annotations

from collections.abc import Mapping

from plog.errors import InvalidRecord
from plog.wire.internal import group_records
from plog.wire.internal.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)
from plog.wire.primitives import WireError
from plogd.coordinator.group.group import EMPTY, STABLE, Group
from plogd.coordinator.group.member import Member, MemberProtocol
from plogd.coordinator.runtime.coordinator_result import CoordinatorRecord


def group_record(group: Group, assignments: Mapping[str, bytes]) -> CoordinatorRecord:
    """Return the record for the group's current state; `assignments` are by member id."""
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
                # Not `member.assignment`, which changes only when this record is durable.
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
    """Return the first record for a group, which does not have durable members yet."""
    value = GroupMetadataValue(
        # As in Kafka's newEmptyGroupMetadataRecord: the first member may never complete its join.
        protocol_type="",
        protocol=None,
        leader=None,
        current_state_timestamp=-1 if group.state_since_ms is None else group.state_since_ms,
    )
    return CoordinatorRecord(GroupMetadataKey(group=group.group_id), value)


def group_tombstone(group_id: str) -> CoordinatorRecord:
    """Return the tombstone that deletes the group."""
    return CoordinatorRecord(GroupMetadataKey(group=group_id), None)


def group_from_record(group_id: str, value: GroupMetadataValue) -> Group:
    """Return the group stored in a record, without delayed requests.

    Raises InvalidRecord if the record is inconsistent.
    """
    _check_members(group_id, value)
    is_led = any(member.member_id == value.leader for member in value.members)
    since_ms = value.current_state_timestamp
    group = Group(
        group_id,
        # A record with members is written only for a complete generation.
        state=STABLE if value.members else EMPTY,
        state_since_ms=None if since_ms == -1 else since_ms,
        generation_id=value.generation,
        protocol_type=value.protocol_type or None,
        protocol_name=value.protocol,
        leader_id=value.leader if is_led else None,  # If None, the first member becomes the leader.
    )
    for member in value.members:
        loaded = Member(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            # Version 0 of the record does not contain a rebalance timeout.
            rebalance_timeout_ms=(
                member.session_timeout if member.rebalance_timeout < 0 else member.rebalance_timeout
            ),
            session_timeout_ms=member.session_timeout,
            # The record contains only the selected protocol; the next JoinGroup lists all of them.
            protocols=(MemberProtocol(value.protocol or "", member.subscription),),
            assignment=member.assignment,
        )
        group.add(loaded, value.protocol_type)
    group.find_subscribed_topics()
    return group


def _check_members(group_id: str, value: GroupMetadataValue) -> None:
    # `Group.add` asserts that ids are unique, but clients can produce records to the topic.
    member_ids = {member.member_id for member in value.members}
    instance_ids = [
        member.group_instance_id for member in value.members if member.group_instance_id is not None
    ]
    if len(member_ids) < len(value.members) or len(set(instance_ids)) < len(instance_ids):
        raise InvalidRecord(f"invalid record for group {group_id}: two members have the same id")
    if value.members and value.protocol is None:
        raise InvalidRecord(f"invalid record for group {group_id}: it has members but no protocol")


def check_group_record(key: bytes | None, value: bytes | None) -> None:
    """Raise InvalidRecord unless the group coordinator can replay this record."""
    try:
        record = group_records.decode(key, value)
    except WireError as error:
        raise InvalidRecord(f"not a record of the group coordinator: {error}") from None
    if record is None:
        raise InvalidRecord("the record belongs to a group protocol that is not supported")
    if isinstance(record.key, GroupMetadataKey) and isinstance(record.value, GroupMetadataValue):
        group_from_record(record.key.group, record.value)
