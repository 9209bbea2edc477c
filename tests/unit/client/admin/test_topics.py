"""TopicAdmin: conversion of requests and responses, and operations on a broker."""

from __future__ import annotations

import pytest

from plog.client.admin.results import Results
from plog.client.admin.topics import (
    TopicAdmin,
    create_partitions_request,
    create_topics_request,
    created_topics,
    delete_topics_request,
)
from plog.client.admin.values import NewPartitions, NewTopic
from plog.client.network.socket_network import run_blocking
from plog.enums import ConfigSource
from plog.errors import (
    ErrorCode,
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopicException,
    TopicAlreadyExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from plog.types import Uuid
from plog.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsResponse,
)
from plog.wire.messages.delete_topics import DeleteTopicState
from tests.helpers.client.fake_cluster import FakeCluster
from tests.unit.client.admin.conftest import Site

TOPIC_ID: Uuid = bytes(range(16))


# -- pure -------------------------------------------------------------------------------------


def test_new_topic_uses_broker_defaults() -> None:
    request = create_topics_request([NewTopic(name="a")], timeout_ms=5, validate_only=False)
    assert request.topics == [CreatableTopic(name="a", num_partitions=-1, replication_factor=-1)]
    assert (request.timeout_ms, request.validate_only) == (5, False)


def test_new_topic_may_have_assignments_and_configs() -> None:
    topic = NewTopic(name="a", assignments={0: (1, 2), 1: (2, 3)}, configs={"retention.ms": "7"})
    [wanted] = create_topics_request([topic], timeout_ms=5, validate_only=True).topics
    assert wanted == CreatableTopic(
        name="a",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2]),
            CreatableReplicaAssignment(partition_index=1, broker_ids=[2, 3]),
        ],
        configs=[CreatableTopicConfig(name="retention.ms", value="7")],
    )


def test_assignments_and_counts_exclude_each_other() -> None:
    topic = NewTopic(name="a", partitions=2, assignments={0: (1,)})
    with pytest.raises(InvalidRequest, match="cannot create topic a: it contains both"):
        create_topics_request([topic], timeout_ms=5, validate_only=False)


def test_created_topic_has_its_id_and_configs() -> None:
    config = CreatableTopicConfigs(name="retention.ms", value="7", config_source=1)
    result = CreatableTopicResult(
        name="a", topic_id=TOPIC_ID, num_partitions=3, replication_factor=1, configs=[config]
    )
    created = Results(created_topics(CreateTopicsResponse(topics=[result]))).get("a")
    assert (created.topic_id, created.partitions, created.replication_factor) == (TOPIC_ID, 3, 1)
    assert created.configs is not None
    assert created.configs["retention.ms"].source is ConfigSource.DYNAMIC_TOPIC_CONFIG


def test_created_topic_of_an_old_broker_has_only_a_name() -> None:
    result = CreatableTopicResult(name="a", configs=None)
    created = Results(created_topics(CreateTopicsResponse(topics=[result]))).get("a")
    assert (created.topic_id, created.partitions, created.configs) == (None, None, None)


def test_hidden_configs_are_none() -> None:
    result = CreatableTopicResult(
        name="a", topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED
    )
    assert Results(created_topics(CreateTopicsResponse(topics=[result]))).get("a").configs is None


def test_topics_are_deleted_by_name_and_by_id() -> None:
    request = delete_topics_request(["a", TOPIC_ID], version=6, timeout_ms=5)
    assert request.topics == [DeleteTopicState(name="a"), DeleteTopicState(topic_id=TOPIC_ID)]
    assert request.encode(6)


def test_old_broker_refuses_deletion_by_id() -> None:
    request = delete_topics_request(["a", "b"], version=5, timeout_ms=5)
    assert request.topic_names == ["a", "b"]
    assert request.encode(5)
    with pytest.raises(UnsupportedVersion, match="topic by id"):
        delete_topics_request(["a", TOPIC_ID], version=5, timeout_ms=5)


def test_new_partitions_may_have_assignments() -> None:
    totals = {"a": 3, "b": NewPartitions(total=2, assignments=[(1, 2)])}
    request = create_partitions_request(totals, timeout_ms=5, validate_only=False)
    a, b = request.topics
    assert (a.name, a.count, a.assignments) == ("a", 3, None)
    assert b.assignments is not None
    assert (b.name, b.count, [x.broker_ids for x in b.assignments]) == ("b", 2, [[1, 2]])


def test_throttled_change_is_retried() -> None:
    cluster = FakeCluster()
    codes = [ErrorCode.THROTTLING_QUOTA_EXCEEDED, ErrorCode.NONE]
    cluster.answer = lambda node_id, request: CreateTopicsResponse(
        topics=[
            CreatableTopicResult(
                name=topic.name, error_code=codes.pop(0) if topic.name == "a" else 0
            )
            for topic in request.topics
        ]
    )
    created = run_blocking(TopicAdmin(cluster.as_cluster()).create_topics(["a", "b"]))
    assert created.errors == {}
    assert [[t.name for t in request.topics] for _, request in cluster.asked] == [
        ["a", "b"],
        ["a"],
    ]


# -- at a broker ------------------------------------------------------------------------------


def test_topic_is_created_listed_described_and_deleted(site: Site) -> None:
    admin = site.admin
    created = site.run(admin.create_topic("a", 3, configs={"retention.ms": "60000"}))
    assert (created.partitions, created.replication_factor) == (3, 1)
    assert created.configs is not None
    assert created.configs["retention.ms"].value == "60000"

    assert list(site.run(admin.list_topics())) == ["a"]
    topic = site.run(admin.describe_topic("a"))
    assert topic.topic_id == created.topic_id
    assert [p.partition for p in topic.partitions] == [0, 1, 2]
    assert {p.leader for p in topic.partitions} == {site.sim.broker.config.node_id}
    assert topic.authorized_operations is None

    site.run(admin.delete_topic("a"))
    assert site.run(admin.list_topics()) == {}
    with pytest.raises(UnknownTopicOrPartition, match="topic a"):
        site.run(admin.describe_topic("a"))


def test_topics_have_their_own_outcomes(site: Site) -> None:
    site.run(site.admin.create_topic("there"))
    results = site.run(
        site.admin.create_topics(
            [
                "new",
                "there",
                NewTopic(name="no/name"),
                NewTopic(name="none", partitions=0),
                NewTopic(name="many", replication_factor=3),
                NewTopic(name="odd", configs={"retention.ms": "soon"}),
            ]
        )
    )
    assert results.get("new").name == "new"
    assert {name: type(error) for name, error in results.errors.items()} == {
        "there": TopicAlreadyExists,
        "no/name": InvalidTopicException,
        "none": InvalidPartitions,
        "many": InvalidReplicationFactor,
        "odd": InvalidConfig,
    }
    assert list(results) == ["new", "there", "no/name", "none", "many", "odd"]


def test_duplicate_topic_is_not_created(site: Site) -> None:
    with pytest.raises(InvalidRequest, match="more than once"):
        site.run(site.admin.create_topics(["a", "a"]))
    assert site.run(site.admin.list_topics()) == {}


def test_validate_only_creates_nothing(site: Site) -> None:
    trial = site.run(site.admin.create_topic("a", 2, validate_only=True))
    assert trial.partitions == 2
    assert site.run(site.admin.list_topics()) == {}
    assert site.run(site.admin.create_partitions({"a": 2})).errors


def test_topics_may_be_identified_by_id(site: Site) -> None:
    admin = site.admin
    topic_id = site.run(admin.create_topic("a", 2)).topic_id
    assert topic_id is not None
    assert site.run(admin.describe_topic(topic_id)).name == "a"
    unknown: Uuid = b"\1" * 16
    described = site.run(admin.describe_topics([unknown, "a", topic_id]))
    assert isinstance(described[unknown], UnknownTopicId)
    assert described.get("a").topic_id == described.get(topic_id).topic_id == topic_id
    deleted = site.run(admin.delete_topics([topic_id, unknown]))
    assert deleted[topic_id] is None
    assert isinstance(deleted[unknown], UnknownTopicId)
    assert site.run(admin.list_topics()) == {}


def test_partitions_can_only_be_added(site: Site) -> None:
    admin = site.admin
    site.run(admin.create_topic("a", 2))
    site.run(admin.create_partitions({"a": 9}, validate_only=True)).raise_first()
    assert len(site.run(admin.describe_topic("a")).partitions) == 2
    grown = site.run(admin.create_partitions({"a": 5, "b": 2}))
    assert grown["a"] is None
    assert isinstance(grown["b"], UnknownTopicOrPartition)
    assert len(site.run(admin.describe_topic("a")).partitions) == 5
    with pytest.raises(InvalidPartitions):
        site.run(admin.create_partitions({"a": 3})).get("a")


def test_change_is_retried_after_a_lost_response(site: Site) -> None:
    lost = ["lose"]
    site.sim.on_request = lambda request: (
        lost.pop() if lost and type(request).__name__ == "CreatePartitionsRequest" else None
    )
    site.run(site.admin.create_topic("a", 1))
    with pytest.raises(InvalidPartitions):  # The first request has already been carried out.
        site.run(site.admin.create_partitions({"a": 2})).get("a")
    assert lost == []
    assert len(site.run(site.admin.describe_topic("a")).partitions) == 2


def test_single_name_instead_of_a_list_is_refused(site: Site) -> None:
    for method in (site.admin.create_topics, site.admin.delete_topics, site.admin.describe_topics):
        with pytest.raises(TypeError, match=r"is 'ab': pass a list, such as \['ab'\]"):
            site.run(method("ab"))
    for method in (site.admin.delete_groups, site.admin.list_group_offsets):
        with pytest.raises(TypeError, match=r"is 'ab': pass a list, such as \['ab'\]"):
            site.run(method("ab"))
