"""Descriptions of groups are decoded from handmade responses."""

from __future__ import annotations

import pytest

from plog.client.admin.group_descriptions import described_consumer_groups, described_groups
from plog.client.admin.values import BrokerDescription, GroupDescription, GroupState
from plog.enums import AclOperation
from plog.errors import ErrorCode, GroupIdNotFound, KafkaError
from plog.types import TopicPartition
from plog.wire.internal.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    OwnedPartitions,
    encode_assignment,
    encode_subscription,
)
from plog.wire.messages import consumer_group_describe as newer
from plog.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)

HERE = BrokerDescription(id=1, host="broker-1", port=9092)
SUBSCRIPTION = encode_subscription(ConsumerProtocolSubscription(topics=["t", "u"]), 1)
ASSIGNMENT = encode_assignment(
    ConsumerProtocolAssignment(
        assigned_partitions=[
            OwnedPartitions(topic="t", partitions=[0, 2]),
            OwnedPartitions(topic="u", partitions=[1]),
        ]
    ),
    1,
)


def _described(group: DescribedGroup) -> GroupDescription:
    response = DescribeGroupsResponse(groups=[group])
    described = described_groups(response, HERE)[group.group_id]
    assert not isinstance(described, KafkaError)
    return described


def test_subscription_and_assignment_are_decoded() -> None:
    member = DescribedGroupMember(
        member_id="m",
        group_instance_id="i",
        client_id="c",
        client_host="/192.0.2.1",
        member_metadata=SUBSCRIPTION,
        member_assignment=ASSIGNMENT,
    )
    group = _described(
        DescribedGroup(
            group_id="g",
            group_state="Stable",
            protocol_type="consumer",
            protocol_data="range",
            members=[member],
        )
    )
    assert (group.state, group.protocol, group.coordinator) == (GroupState.STABLE, "range", HERE)
    assert group.authorized_operations is None
    [described] = group.members
    assert described.subscription == {"t", "u"}
    assert described.assignment == {
        TopicPartition("t", 0),
        TopicPartition("t", 2),
        TopicPartition("u", 1),
    }
    assert (described.member_id, described.group_instance_id, described.client_id) == (
        "m",
        "i",
        "c",
    )
    assert (described.raw_metadata, described.raw_assignment) == (SUBSCRIPTION, ASSIGNMENT)


@pytest.mark.parametrize(
    ("protocol_type", "data"),
    [("connect", ASSIGNMENT), ("consumer", b""), ("consumer", b"\0"), ("consumer", b"\0\1\0\0\1")],
)
def test_invalid_assignment_is_kept_as_bytes(protocol_type: str, data: bytes) -> None:
    member = DescribedGroupMember(member_id="m", member_metadata=data, member_assignment=data)
    group = _described(DescribedGroup(group_id="g", protocol_type=protocol_type, members=[member]))
    [described] = group.members
    assert (described.subscription, described.assignment) == (frozenset(), frozenset())
    assert (described.raw_metadata, described.raw_assignment) == (data, data)


def test_authorized_operations_are_returned_on_request() -> None:
    group = _described(DescribedGroup(group_id="g", authorized_operations=0b1_0000_1000))
    assert group.authorized_operations == {AclOperation.READ, AclOperation.DESCRIBE}


def test_newer_group_has_current_and_target_assignments() -> None:
    has = newer.Assignment(
        topic_partitions=[newer.TopicPartitions(topic_name="t", partitions=[0, 1])]
    )
    target = newer.Assignment(
        topic_partitions=[newer.TopicPartitions(topic_name="t", partitions=[0])]
    )
    member = newer.Member(
        member_id="m",
        instance_id="i",
        rack_id="r",
        member_epoch=6,
        client_id="c",
        client_host="/192.0.2.1",
        subscribed_topic_names=["t"],
        subscribed_topic_regex="t.*",
        assignment=has,
        target_assignment=target,
    )
    response = newer.ConsumerGroupDescribeResponse(
        groups=[
            newer.DescribedGroup(
                group_id="g",
                group_state="Reconciling",
                group_epoch=7,
                assignment_epoch=8,
                assignor_name="uniform",
                members=[member],
            ),
            newer.DescribedGroup(group_id="h", error_code=ErrorCode.GROUP_ID_NOT_FOUND),
        ]
    )
    described = described_consumer_groups(response, HERE)
    assert isinstance(described["h"], GroupIdNotFound)
    group = described["g"]
    assert isinstance(group, GroupDescription)
    assert (group.type, group.state, group.protocol) == (
        "consumer",
        GroupState.RECONCILING,
        "uniform",
    )
    assert (group.epoch, group.assignment_epoch, group.protocol_type) == (7, 8, "consumer")
    [described] = group.members
    assert described.assignment == {TopicPartition("t", 0), TopicPartition("t", 1)}
    assert described.target_assignment == {TopicPartition("t", 0)}
    assert (described.subscription, described.subscription_pattern) == ({"t"}, "t.*")
    assert (described.epoch, described.rack, described.group_instance_id) == (6, "r", "i")
