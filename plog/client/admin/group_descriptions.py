"""Decode group descriptions from the classic protocol and from KIP-848's protocol. No I/O.

In the classic protocol, the broker stores subscriptions and assignments as opaque bytes; this
module decodes the bytes from consumers. In KIP-848's protocol, the broker assigns the partitions,
so its responses contain them.
"""

from __future__ import annotations

from collections.abc import Iterable

from plog.client.admin.results import outcome
from plog.client.admin.values import (
    BrokerDescription,
    GroupDescription,
    GroupState,
    MemberDescription,
    operations_of,
)
from plog.errors import KafkaError
from plog.types import TopicPartition
from plog.wire.internal.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    decode_assignment,
    subscribed_topics,
)
from plog.wire.messages import consumer_group_describe as newer
from plog.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from plog.wire.schema import WireError

_CLASSIC, _CONSUMER = "classic", "consumer"


def described_groups(
    response: DescribeGroupsResponse, coordinator: BrokerDescription
) -> dict[str, GroupDescription | KafkaError]:
    """Return the classic groups in one coordinator's response."""
    # If a group has an error, `outcome` discards its empty description.
    return {
        group.group_id: outcome(
            group.error_code,
            group.error_message,
            f"group {group.group_id}",
            _classic(group, coordinator),
        )
        for group in response.groups
    }


def _classic(group: DescribedGroup, coordinator: BrokerDescription) -> GroupDescription:
    # Other protocol types, such as Kafka Connect's, use formats that are not decoded here.
    consumes = group.protocol_type == CONSUMER_PROTOCOL_TYPE
    return GroupDescription(
        group_id=group.group_id,
        type=_CLASSIC,
        state=GroupState(group.group_state),
        protocol_type=group.protocol_type,
        protocol=group.protocol_data,
        members=tuple(_classic_member(member, consumes=consumes) for member in group.members),
        coordinator=coordinator,
        authorized_operations=operations_of(group.authorized_operations),
    )


def _classic_member(member: DescribedGroupMember, *, consumes: bool) -> MemberDescription:
    metadata, assignment = bytes(member.member_metadata), bytes(member.member_assignment)
    return MemberDescription(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        host=member.client_host,
        subscription=_subscription(metadata) if consumes else frozenset(),
        assignment=_assignment(assignment) if consumes else frozenset(),
        raw_metadata=metadata,
        raw_assignment=assignment,
    )


def _subscription(metadata: bytes) -> frozenset[str]:
    """Return the subscribed topics; empty during a rebalance and for an invalid subscription."""
    try:
        return subscribed_topics(metadata)
    except WireError:
        # A client wrote these bytes: one member's invalid bytes must not hide the whole group.
        return frozenset()


def _assignment(data: bytes) -> frozenset[TopicPartition]:
    """Return the assigned partitions; empty during a rebalance and for an invalid assignment."""
    try:
        assignment = decode_assignment(data)
    except WireError:  # The group leader, a client, wrote these bytes.
        return frozenset()
    return frozenset(
        TopicPartition(topic.topic, number)
        for topic in assignment.assigned_partitions
        for number in topic.partitions
    )


def described_consumer_groups(
    response: newer.ConsumerGroupDescribeResponse, coordinator: BrokerDescription
) -> dict[str, GroupDescription | KafkaError]:
    """Return the groups in one coordinator's response that use KIP-848's protocol."""
    return {
        group.group_id: outcome(
            group.error_code,
            group.error_message,
            f"group {group.group_id}",
            _newer(group, coordinator),
        )
        for group in response.groups
    }


def _newer(group: newer.DescribedGroup, coordinator: BrokerDescription) -> GroupDescription:
    return GroupDescription(
        group_id=group.group_id,
        type=_CONSUMER,
        state=GroupState(group.group_state),
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol=group.assignor_name,
        members=tuple(_newer_member(member) for member in group.members),
        coordinator=coordinator,
        epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        authorized_operations=operations_of(group.authorized_operations),
    )


def _newer_member(member: newer.Member) -> MemberDescription:
    return MemberDescription(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        host=member.client_host,
        subscription=frozenset(member.subscribed_topic_names),
        # An empty pattern means that the member subscribes by name.
        subscription_pattern=member.subscribed_topic_regex or None,
        assignment=_partitions(member.assignment.topic_partitions),
        target_assignment=_partitions(member.target_assignment.topic_partitions),
        epoch=member.member_epoch,
        rack=member.rack_id,
    )


def _partitions(topics: Iterable[newer.TopicPartitions]) -> frozenset[TopicPartition]:
    return frozenset(
        TopicPartition(topic.topic_name, number) for topic in topics for number in topic.partitions
    )
