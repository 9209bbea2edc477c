"""GroupOffsetAdmin: conversion of requests and responses, and operations on a broker."""

from __future__ import annotations

import pytest

from plog.client.admin.group_offsets import (
    GroupOffsetAdmin,
    committed_offsets,
    fetched_offsets,
    offset_commit_request,
    offset_fetch_requests,
)
from plog.client.admin.results import Results
from plog.client.network.socket_network import run_blocking
from plog.client.values import OffsetAndMetadata
from plog.errors import (
    ErrorCode,
    GroupIdNotFound,
    GroupSubscribedToTopic,
    NonEmptyGroup,
    UnknownTopicOrPartition,
    UnstableOffsetCommit,
)
from plog.types import TopicPartition
from plog.wire.internal.consumer_protocol import ConsumerProtocolSubscription, encode_subscription
from plog.wire.messages.join_group import JoinGroupRequestProtocol
from plog.wire.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from plog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from tests.helpers.client.fake_cluster import FakeCluster
from tests.helpers.group.group_frames import GROUP, join_request, stable
from tests.helpers.sim.sim_broker import create_topic
from tests.unit.client.admin.conftest import Site

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


# -- pure -------------------------------------------------------------------------------------


def test_offset_fetch_requests_are_combined_where_supported() -> None:
    groups = {"g": [T0, T1, U0], "h": None}
    [new] = offset_fetch_requests(groups, version=9, require_stable=True)
    g, h = new.groups
    assert g.topics is not None
    assert [(t.name, t.partition_indexes) for t in g.topics] == [("t", [0, 1]), ("u", [0])]
    assert (h.group_id, h.topics, new.require_stable) == ("h", None, True)
    assert new.encode(9)

    one, other = offset_fetch_requests(groups, version=6, require_stable=True)
    assert one.topics is not None
    assert [(t.name, t.partition_indexes) for t in one.topics] == [("t", [0, 1]), ("u", [0])]
    assert (other.group_id, other.topics, other.require_stable) == ("h", None, False)
    assert one.encode(6)
    assert other.encode(6)


def test_offsets_are_decoded_from_new_and_old_responses() -> None:
    new = OffsetFetchResponse(
        groups=[
            OffsetFetchResponseGroup(
                group_id="g",
                topics=[
                    OffsetFetchResponseTopics(
                        name="t",
                        partitions=[
                            OffsetFetchResponsePartitions(
                                partition_index=0,
                                committed_offset=7,
                                committed_leader_epoch=2,
                                metadata="x",
                            ),
                            OffsetFetchResponsePartitions(partition_index=1, committed_offset=-1),
                        ],
                    )
                ],
            )
        ]
    )
    old = OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name="t",
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=0,
                        committed_offset=7,
                        committed_leader_epoch=2,
                        metadata="x",
                    ),
                    OffsetFetchResponsePartition(partition_index=1, committed_offset=-1),
                ],
            )
        ]
    )
    expected = {T0: OffsetAndMetadata(7, "x", 2), T1: None}
    assert fetched_offsets(OffsetFetchRequest(), new) == {"g": expected}
    assert fetched_offsets(OffsetFetchRequest(group_id="g"), old) == {"g": expected}


def test_group_errors_and_partition_errors_are_separate() -> None:
    unstable = OffsetFetchResponsePartitions(
        partition_index=0, error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT
    )
    response = OffsetFetchResponse(
        groups=[
            OffsetFetchResponseGroup(group_id="g", error_code=ErrorCode.GROUP_ID_NOT_FOUND),
            OffsetFetchResponseGroup(
                group_id="h", topics=[OffsetFetchResponseTopics(name="t", partitions=[unstable])]
            ),
        ]
    )
    fetched = fetched_offsets(OffsetFetchRequest(), response)
    assert isinstance(fetched["g"], GroupIdNotFound)
    assert isinstance(fetched["h"], Results)
    assert isinstance(fetched["h"][T0], UnstableOffsetCommit)


def test_offsets_are_committed_without_a_member_id() -> None:
    request = offset_commit_request("g", {T0: 5, T1: OffsetAndMetadata(6, "why", 3)})
    assert (request.generation_id_or_member_epoch, request.member_id) == (-1, "")
    [topic] = request.topics
    assert [
        (p.committed_offset, p.committed_metadata, p.committed_leader_epoch)
        for p in topic.partitions
    ] == [(5, "", -1), (6, "why", 3)]


def test_unknown_member_error_becomes_non_empty_group() -> None:
    partition = OffsetCommitResponsePartition(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
    response = OffsetCommitResponse(
        topics=[OffsetCommitResponseTopic(name="t", partitions=[partition])]
    )
    error = committed_offsets("g", response)[T0]
    assert isinstance(error, NonEmptyGroup)
    assert "offsets for group g: it still has members" in str(error)


def test_moved_coordinator_is_found_again() -> None:
    cluster = FakeCluster(coordinators={"g": 1})

    def answer(node_id: int, request: object) -> OffsetCommitResponse:
        code = ErrorCode.NOT_COORDINATOR if cluster.coordinators["g"] == 1 else 0
        cluster.coordinators["g"] = 2
        partition = OffsetCommitResponsePartition(error_code=code)
        return OffsetCommitResponse(
            topics=[OffsetCommitResponseTopic(name="t", partitions=[partition])]
        )

    cluster.answer = answer
    admin = GroupOffsetAdmin(cluster.as_cluster())
    assert run_blocking(admin.alter_group_offsets("g", {T0: 5})) == {T0: None}
    assert [node for node, _ in cluster.asked] == [1, 2]
    assert cluster.forgotten == ["g"]


def test_old_coordinator_gets_one_request_per_group() -> None:
    cluster = FakeCluster(coordinators={"g": 1, "h": 1}, versions={OffsetFetchRequest: 5})
    cluster.answer = lambda node_id, request: OffsetFetchResponse(
        error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED if request.group_id == "g" else 0
    )
    listed = run_blocking(GroupOffsetAdmin(cluster.as_cluster()).list_group_offsets(["g", "h"]))
    assert list(listed.errors) == ["g"]
    assert listed.get("h") == {}


# -- at a broker ------------------------------------------------------------------------------


def test_offsets_are_set_listed_and_deleted(site: Site) -> None:
    admin = site.admin
    create_topic(site.sim.broker, "t", 3)
    altered = site.run(admin.alter_group_offsets("g", {T0: 5, T1: OffsetAndMetadata(6, "why", 0)}))
    assert altered == {T0: None, T1: None}
    assert site.run(admin.group_offsets("g")) == {
        T0: OffsetAndMetadata(5),
        T1: OffsetAndMetadata(6, "why", 0),
    }
    none = TopicPartition("t", 2)
    assert site.run(admin.group_offsets("g", [T0, none])) == {
        T0: OffsetAndMetadata(5),
        none: None,
    }
    forgotten = site.run(admin.delete_group_offsets("g", [T0, TopicPartition("t", 9)]))
    assert forgotten[T0] is None
    assert isinstance(forgotten[TopicPartition("t", 9)], UnknownTopicOrPartition)
    assert list(site.run(admin.group_offsets("g"))) == [T1]


def test_offsets_of_several_groups_are_listed_together(site: Site) -> None:
    admin = site.admin
    create_topic(site.sim.broker, "t", 2)
    for number, group in enumerate(["g", "h"]):
        site.run(admin.alter_group_offsets(group, {T0: number}))
    listed = site.run(admin.list_group_offsets({"g": None, "h": [T0], "unknown": None}))
    assert {group: offsets.raise_first() for group, offsets in listed.raise_first().items()} == {
        "g": {T0: OffsetAndMetadata(0)},
        "h": {T0: OffsetAndMetadata(1)},
        "unknown": {},
    }


def test_offsets_of_a_group_with_members_cannot_be_set(site: Site) -> None:
    create_topic(site.sim.broker, "t")
    stable(site.sim.broker)
    with pytest.raises(NonEmptyGroup, match="offsets for group g: it still has members"):
        site.run(site.admin.alter_group_offsets(GROUP, {T0: 5})).get(T0)


def test_offsets_of_missing_topics_cannot_be_set(site: Site) -> None:
    create_topic(site.sim.broker, "t")
    altered = site.run(site.admin.alter_group_offsets("g", {T0: 5, U0: 5}))
    assert altered[T0] is None
    assert isinstance(altered[U0], UnknownTopicOrPartition)


def test_offsets_of_a_subscribed_topic_cannot_be_deleted(site: Site) -> None:
    broker = site.sim.broker
    create_topic(broker, "t")
    create_topic(broker, "u")
    site.run(site.admin.alter_group_offsets(GROUP, {T0: 5, U0: 5}))
    subscription = encode_subscription(ConsumerProtocolSubscription(topics=["t"]), 1)
    protocols = [JoinGroupRequestProtocol(name="range", metadata=subscription)]
    member_id = broker.ask(join_request(protocols=protocols), 9).member_id
    joined = broker.begin(join_request(member_id, protocols=protocols), 9)
    site.sim.advance(3_000)
    assert joined.response().error_code == 0
    forgotten = site.run(site.admin.delete_group_offsets(GROUP, [T0, U0]))
    assert isinstance(forgotten[T0], GroupSubscribedToTopic)
    assert forgotten[U0] is None


def test_deleting_offsets_of_an_unknown_group_fails(site: Site) -> None:
    create_topic(site.sim.broker, "t")
    with pytest.raises(GroupIdNotFound, match="group unknown"):
        site.run(site.admin.delete_group_offsets("unknown", [T0]))


def test_empty_alter_sends_no_request(site: Site) -> None:
    assert site.run(site.admin.alter_group_offsets("g", {})) == {}
    assert site.sim.requests == []
