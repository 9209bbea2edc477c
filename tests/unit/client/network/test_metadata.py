"""Metadata responses update the snapshot."""

from __future__ import annotations

from plog.client.network.metadata import ClusterMetadata
from plog.errors import ErrorCode
from plog.types import TopicPartition
from plog.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

T0 = TopicPartition("t", 0)


def response_with(
    leader: int, epoch: int, *, topic_id: bytes = b"a" * 16, error: int = 0
) -> MetadataResponse:
    partition = MetadataResponsePartition(
        partition_index=0, leader_id=leader, leader_epoch=epoch, error_code=error
    )
    topic = MetadataResponseTopic(name="t", topic_id=topic_id, partitions=[partition])
    brokers = [MetadataResponseBroker(node_id=number, host="h", port=1) for number in (1, 2)]
    return MetadataResponse(brokers=brokers, topics=[topic])


def test_leader_with_an_older_epoch_is_ignored() -> None:
    metadata = ClusterMetadata().updated(response_with(2, 5), replace_topics=False)
    metadata = metadata.updated(response_with(1, 4), replace_topics=False)
    assert metadata.leader_of(T0) == 2
    metadata = metadata.updated(response_with(1, 6), replace_topics=False)
    assert metadata.leader_of(T0) == 1


def test_empty_broker_list_keeps_known_brokers() -> None:
    metadata = ClusterMetadata().updated(response_with(2, 5), replace_topics=False)
    metadata = metadata.updated(MetadataResponse(brokers=[], topics=[]), replace_topics=False)
    assert sorted(metadata.brokers) == [1, 2]


def test_recreated_topic_replaces_leader_epochs() -> None:
    metadata = ClusterMetadata().updated(response_with(2, 5), replace_topics=False)
    metadata = metadata.updated(response_with(1, 0, topic_id=b"b" * 16), replace_topics=False)
    assert metadata.leader_of(T0) == 1


def test_unknown_error_code_becomes_unknown_server_error() -> None:
    metadata = ClusterMetadata().updated(response_with(-1, 0, error=30_000), replace_topics=False)
    partition = metadata.partition(T0)
    assert partition is not None
    assert partition.error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert metadata.leader_of(T0) is None


def test_replace_topics_drops_topics_not_in_the_response() -> None:
    metadata = ClusterMetadata().updated(response_with(1, 0), replace_topics=False)
    assert "t" in metadata.updated(MetadataResponse(), replace_topics=False).topics
    assert "t" not in metadata.updated(MetadataResponse(), replace_topics=True).topics
    assert metadata.partition_count("t") == 1
    assert metadata.partition(TopicPartition("t", 9)) is None
