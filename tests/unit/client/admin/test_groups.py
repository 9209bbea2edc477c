"""GroupAdmin: conversion of requests and responses, and operations on a broker."""

from __future__ import annotations

import pytest

from plog.client.admin.groups import (
    GroupAdmin,
    leave_group_request,
    listed_groups,
    removed_members,
)
from plog.client.admin.values import GroupState, MemberToRemove
from plog.client.network.socket_network import run_blocking
from plog.errors import (
    ErrorCode,
    GroupIdNotFound,
    KafkaError,
    NonEmptyGroup,
    UnknownMemberId,
)
from plog.types import TopicPartition
from plog.wire.internal.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    OwnedPartitions,
    encode_assignment,
    encode_subscription,
)
from plog.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from plog.wire.messages.consumer_group_describe import DescribedGroup as NewerGroup
from plog.wire.messages.describe_groups import DescribedGroup, DescribeGroupsResponse
from plog.wire.messages.join_group import JoinGroupRequestProtocol
from plog.wire.messages.leave_group import LeaveGroupResponse, MemberResponse
from plog.wire.messages.list_groups import ListedGroup, ListGroupsResponse
from plog.wire.schema import ApiMessage
from tests.helpers.client.fake_cluster import FakeCluster
from tests.helpers.group.group_frames import GROUP, heartbeat, join_request, stable, sync
from tests.helpers.offsets import commit
from tests.helpers.sim.sim_broker import create_topic
from tests.unit.client.admin.conftest import Site

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


# -- pure -------------------------------------------------------------------------------------


def test_listed_group_has_state_and_type_if_the_broker_sends_them() -> None:
    response = ListGroupsResponse(
        groups=[
            ListedGroup(
                group_id="g",
                protocol_type="consumer",
                group_state="PreparingRebalance",
                group_type="classic",
            ),
            ListedGroup(group_id="old"),
            ListedGroup(group_id="new", group_state="Dreaming"),
        ]
    )
    group, old, new = listed_groups(response)
    assert (group.state, group.type) == (GroupState.PREPARING_REBALANCE, "classic")
    assert not group.is_simple
    assert (old.state, old.type) == (None, None)
    assert old.is_simple
    assert new.state is GroupState.UNKNOWN


def test_group_state_ignores_case() -> None:
    assert GroupState("stable") is GroupState.STABLE
    assert GroupState("COMPLETINGREBALANCE") is GroupState.COMPLETING_REBALANCE
    assert GroupState.EMPTY == "Empty"


def test_leave_group_request_names_members_and_reason() -> None:
    members = [MemberToRemove("m"), MemberToRemove(group_instance_id="i")]
    request = leave_group_request("g", members, "tired")
    assert [(x.member_id, x.group_instance_id, x.reason) for x in request.members] == [
        ("m", None, "tired"),
        ("", "i", "tired"),
    ]


def test_removed_members_have_their_own_outcomes() -> None:
    by_id, static, lost = MemberToRemove("m"), MemberToRemove("", "i"), MemberToRemove("x")
    response = LeaveGroupResponse(
        members=[
            MemberResponse(
                member_id="m", group_instance_id=None, error_code=ErrorCode.UNKNOWN_MEMBER_ID
            ),
            # Kafka returns the id of the member that used the instance id.
            MemberResponse(member_id="i-7", group_instance_id="i"),
        ]
    )
    removed = removed_members([by_id, static, lost], response)
    assert isinstance(removed[by_id], UnknownMemberId)
    assert removed[static] is None
    assert "has no result for member x" in str(removed[lost])


def test_groups_of_all_brokers_are_listed() -> None:
    cluster = FakeCluster(brokers=(1, 2))
    codes = {1: [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 0], 2: [0]}
    cluster.answer = lambda node_id, request: ListGroupsResponse(
        error_code=codes[node_id].pop(0),
        groups=[ListedGroup(group_id=f"g{9 - node_id}", protocol_type="consumer")],
    )
    groups = run_blocking(GroupAdmin(cluster.as_cluster()).list_groups())
    assert list(groups) == ["g7", "g8"]
    assert [node for node, _ in cluster.asked] == [1, 2, 1]


@pytest.mark.parametrize("classic", ["GROUP_ID_NOT_FOUND", "Dead"])
@pytest.mark.parametrize("newer", ["GROUP_ID_NOT_FOUND", "UNSUPPORTED_VERSION"])
def test_unknown_classic_group_is_described_with_the_newer_protocol(
    classic: str, newer: str
) -> None:
    cluster = FakeCluster(coordinators={"g": 2, "h": 2, "i": 2})
    code = ErrorCode.GROUP_ID_NOT_FOUND if classic != "Dead" else ErrorCode.NONE

    def answer(node_id: int, request: object) -> ApiMessage:
        if isinstance(request, ConsumerGroupDescribeRequest):
            assert request.group_ids == ["h", "i"]
            return ConsumerGroupDescribeResponse(
                groups=[
                    NewerGroup(group_id="h", group_state="Stable"),
                    NewerGroup(group_id="i", error_code=ErrorCode[newer]),
                ]
            )
        return DescribeGroupsResponse(
            groups=[
                DescribedGroup(group_id="g", group_state="Empty"),
                DescribedGroup(group_id="h", group_state="Dead", error_code=code),
                DescribedGroup(group_id="i", group_state="Dead", error_code=code),
            ]
        )

    cluster.answer = answer
    described = run_blocking(GroupAdmin(cluster.as_cluster()).describe_groups(["g", "h", "i"]))
    assert (described.get("g").type, described.get("h").type) == ("classic", "consumer")
    assert described.get("h").coordinator.host == "broker-2"
    if code:
        assert isinstance(described["i"], GroupIdNotFound)
    else:
        assert described.get("i").state is GroupState.DEAD


def test_list_groups_raises_the_error_of_any_broker() -> None:
    cluster = FakeCluster(brokers=(1, 2))
    cluster.answer = lambda node_id, request: ListGroupsResponse(
        error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED if node_id == 2 else 0
    )
    with pytest.raises(KafkaError, match="the groups of broker 2"):
        run_blocking(GroupAdmin(cluster.as_cluster()).list_groups())


# -- at a broker ------------------------------------------------------------------------------


def test_groups_are_listed_by_state_and_type(site: Site) -> None:
    broker = site.sim.broker
    create_topic(broker, "t")
    stable(broker)
    commit(broker, "simple", {("t", 0): 1})
    admin = site.admin
    every = site.run(admin.list_groups())
    assert {name: group.state for name, group in every.items()} == {
        "g": GroupState.STABLE,
        "simple": GroupState.EMPTY,
    }
    assert every["g"].type is not None
    assert every["g"].type.lower() == "classic"
    assert list(site.run(admin.list_groups(states=["empty"]))) == ["simple"]
    assert list(site.run(admin.list_groups(protocol_types=["consumer"]))) == ["g"]
    assert list(site.run(admin.list_groups(types=["classic"]))) == ["g", "simple"]
    assert site.run(admin.list_groups(types=["share"])) == {}


def test_group_description_has_its_coordinator(site: Site) -> None:
    first, second = stable(site.sim.broker, 2, instances=True)
    group = site.run(site.admin.describe_group(GROUP))
    assert (group.state, group.protocol_type, group.protocol) == ("Stable", "consumer", "range")
    assert {x.member_id for x in group.members} == {first.member_id, second.member_id}
    assert {x.group_instance_id for x in group.members} == {"i0", "i1"}
    assert {x.raw_assignment for x in group.members} == {b"0", b"1"}
    assert group.coordinator.id == site.sim.broker.config.node_id
    assert group.coordinator.port > 0


def test_unknown_group_has_its_own_error(site: Site) -> None:
    stable(site.sim.broker)
    described = site.run(site.admin.describe_groups([GROUP, "unknown"]))
    assert described.get(GROUP).state is GroupState.STABLE
    with pytest.raises(GroupIdNotFound):
        described.get("unknown")


def test_only_empty_groups_are_deleted(site: Site) -> None:
    broker = site.sim.broker
    create_topic(broker, "t")
    stable(broker)
    commit(broker, "simple", {("t", 0): 1})
    deleted = site.run(site.admin.delete_groups([GROUP, "simple", "unknown"]))
    assert isinstance(deleted[GROUP], NonEmptyGroup)
    assert deleted["simple"] is None
    assert isinstance(deleted["unknown"], GroupIdNotFound)
    assert list(site.run(site.admin.list_groups())) == [GROUP]


def test_static_members_are_removed_by_instance_id(site: Site) -> None:
    first, _ = stable(site.sim.broker, 2, instances=True)
    removed = site.run(site.admin.remove_members(GROUP, ["i1", "unknown"]))
    assert removed[MemberToRemove(group_instance_id="i1")] is None
    with pytest.raises(UnknownMemberId):
        removed.get(MemberToRemove(group_instance_id="unknown"))
    # The other member has to rejoin.
    assert heartbeat(site.sim.broker, first) == ErrorCode.REBALANCE_IN_PROGRESS


def test_all_members_are_removed_together(site: Site) -> None:
    first, second = stable(site.sim.broker, 2)
    removed = site.run(site.admin.remove_members(GROUP, reason="maintenance"))
    assert sorted(removed) == sorted(
        [MemberToRemove(first.member_id), MemberToRemove(second.member_id)]
    )
    assert removed.errors == {}


def test_request_is_retried_after_a_coordinator_restart(site: Site) -> None:
    stable(site.sim.broker)
    cuts = ["drop", "lose"]
    site.sim.on_request = lambda request: (
        cuts.pop() if cuts and type(request).__name__ == "DescribeGroupsRequest" else None
    )
    assert site.run(site.admin.describe_group(GROUP)).state is GroupState.STABLE
    assert cuts == []


def test_description_has_the_assignment_of_the_leader(site: Site) -> None:
    broker = site.sim.broker
    broker.ask(join_request(), 9)  # The coordinator loads.
    protocols = [JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)]
    member_id = broker.ask(join_request(protocols=protocols), 9).member_id
    asked = broker.begin(join_request(member_id, protocols=protocols), 9)
    site.sim.advance(3_000)  # The initial delay of a rebalance.
    joined = asked.response()
    assert sync(broker, joined, {member_id: ASSIGNMENT}).error_code == 0
    [member] = site.run(site.admin.describe_group(GROUP)).members
    assert member.subscription == {"t", "u"}
    assert TopicPartition("u", 1) in member.assignment
