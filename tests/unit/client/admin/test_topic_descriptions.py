"""TopicDescriptionAdmin: conversion of responses, and operations on a broker."""

from __future__ import annotations

from plog.client.admin.topic_descriptions import TopicDescriptionAdmin, described_topics
from plog.client.network.socket_network import run_blocking
from plog.enums import AclOperation
from plog.errors import ErrorCode, KafkaError, UnknownTopicOrPartition, UnsupportedVersion
from plog.types import Uuid
from plog.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from plog.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from plog.wire.schema import ApiMessage
from tests.helpers.client.fake_cluster import ANY, FakeCluster
from tests.unit.client.admin.conftest import Site

TOPIC_ID: Uuid = bytes(range(16))


# -- pure -------------------------------------------------------------------------------------


def test_topics_keep_the_order_of_the_metadata_response() -> None:
    partitions = [
        MetadataResponsePartition(partition_index=1, leader_id=-1, replica_nodes=[2]),
        MetadataResponsePartition(
            partition_index=0, leader_id=1, leader_epoch=4, replica_nodes=[1, 2], isr_nodes=[1]
        ),
    ]
    response = MetadataResponse(
        topics=[
            MetadataResponseTopic(name="b", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            MetadataResponseTopic(name="a", partitions=partitions, topic_authorized_operations=8),
        ]
    )
    error, topic = described_topics(response)
    assert isinstance(error, UnknownTopicOrPartition)
    assert not isinstance(topic, KafkaError)
    assert [p.leader for p in topic.partitions] == [1, None]
    assert [p.leader_epoch for p in topic.partitions] == [4, None]
    assert topic.partitions[0].isr == (1,)
    assert topic.partitions[0].eligible_leaders is None
    assert topic.replication_factor == 2
    assert topic.authorized_operations == {AclOperation.READ}
    assert topic.topic_id is None


def test_old_broker_describes_topics_with_metadata() -> None:
    cluster = FakeCluster()

    def answer(node_id: int, request: ApiMessage) -> ApiMessage:
        if isinstance(request, DescribeTopicPartitionsRequest):
            raise UnsupportedVersion("pages are not supported")
        return MetadataResponse(topics=[MetadataResponseTopic(name="a", topic_id=TOPIC_ID)])

    cluster.answer = answer
    topics = run_blocking(TopicDescriptionAdmin(cluster.as_cluster()).describe_topics(["a"]))
    assert topics.get("a").topic_id == TOPIC_ID
    assert [node for node, _ in cluster.asked] == [ANY, ANY]


# -- at a broker ------------------------------------------------------------------------------


def test_pages_give_the_same_topics_as_one_response(site: Site) -> None:
    admin = site.admin
    for name, partitions in (("b", 5), ("a", 1), ("c", 2)):
        site.run(admin.create_topic(name, partitions))
    whole = site.run(admin.describe_topics())
    site.sim.requests.clear()
    assert site.run(admin.describe_topics(page_partitions=2)) == whole
    assert len(site.sim.requests) == 4
    assert {name: len(x.partitions) for name, x in whole.values_by_key.items()} == {
        "a": 1,
        "b": 5,
        "c": 2,
    }


def test_empty_list_describes_no_topics(site: Site) -> None:
    site.run(site.admin.create_topic("a"))
    assert site.run(site.admin.describe_topics([])) == {}


def test_authorized_operations_are_returned_on_request(site: Site) -> None:
    site.run(site.admin.create_topic("a"))
    topic = site.run(site.admin.describe_topic("a", include_authorized_operations=True))
    assert topic.authorized_operations is not None
    assert AclOperation.READ in topic.authorized_operations
    assert AclOperation.CLUSTER_ACTION not in topic.authorized_operations


def test_internal_topics_are_listed_on_request(site: Site) -> None:
    site.run(site.admin.alter_group_offsets("g", {}))
    site.run(site.admin.create_topic("a"))
    site.run(site.admin.list_group_offsets(["g"]))
    assert list(site.run(site.admin.list_topics())) == ["a"]
    every = site.run(site.admin.list_topics(include_internal=True))
    assert [name for name, topic in every.items() if topic.is_internal] == ["__consumer_offsets"]


def test_describe_does_not_create_a_topic(site: Site) -> None:
    assert site.run(site.admin.describe_topics(["a"])).errors
    assert site.run(site.admin.list_topics()) == {}
