"""Leaders that Produce and Fetch responses name replace older ones (KIP-951)."""

from __future__ import annotations

import pytest

from plog.client.network.leader_hints import named_leader, with_leaders
from plog.client.network.metadata import ClusterMetadata
from plog.errors import ErrorCode
from plog.types import TopicPartition
from plog.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from plog.wire.messages.produce import LeaderIdAndEpoch, NodeEndpoint

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def metadata() -> ClusterMetadata:
    """Brokers 1 and 2; broker 1 leads two partitions in epoch 5."""
    partitions = [
        MetadataResponsePartition(partition_index=number, leader_id=1, leader_epoch=5)
        for number in range(2)
    ]
    response = MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=one, host="h", port=one) for one in (1, 2)],
        topics=[MetadataResponseTopic(name="t", topic_id=b"a" * 16, partitions=partitions)],
    )
    return ClusterMetadata().updated(response, replace_topics=False)


@pytest.mark.parametrize(
    ("code", "leader", "epoch", "expected"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, 2, 6, (2, 6)),
        (ErrorCode.FENCED_LEADER_EPOCH, 0, 0, (0, 0)),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1, None),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, 2, -1, None),
        (ErrorCode.NONE, 2, 6, None),
        (ErrorCode.KAFKA_STORAGE_ERROR, 2, 6, None),
    ],
)
def test_leader_is_named_after_errors_about_leaders(
    code: int, leader: int, epoch: int, expected: tuple[int, int] | None
) -> None:
    assert named_leader(code, LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)) == expected


def test_newer_leader_replaces_the_known_one(metadata: ClusterMetadata) -> None:
    updated, moved = with_leaders(metadata, {T0: (2, 6)}, ())
    assert moved == {T0}
    assert (updated.leader_of(T0), updated.leader_of(T1)) == (2, 1)
    found = updated.partition(T0)
    assert found is not None
    assert found.leader_epoch == 6
    assert updated.topics["t"].topic_id == b"a" * 16
    # It is not a Metadata response, so it says nothing about missing topics.
    assert (metadata.answered, updated.answered) == ({"t"}, frozenset())


def test_address_of_a_new_broker_is_learned(metadata: ClusterMetadata) -> None:
    endpoint = NodeEndpoint(node_id=3, host="new", port=9, rack="r")
    updated, moved = with_leaders(metadata, {T1: (3, 6)}, [endpoint])
    assert (moved, updated.leader_of(T1)) == ({T1}, 3)
    assert (updated.brokers[3].address, updated.brokers[3].rack) == ("new:9", "r")
    assert sorted(updated.brokers) == [1, 2, 3]


@pytest.mark.parametrize(
    ("key", "leader", "epoch"),
    [
        (T0, 2, 5),
        (T0, 2, 4),
        (T0, 3, 6),
        (TopicPartition("t", 2), 2, 6),
        (TopicPartition("u", 0), 2, 6),
    ],
    ids=["same epoch", "older", "no address", "unknown partition", "unknown topic"],
)
def test_other_leaders_are_ignored(
    metadata: ClusterMetadata, key: TopicPartition, leader: int, epoch: int
) -> None:
    updated, moved = with_leaders(metadata, {key: (leader, epoch)}, ())
    assert updated is metadata
    assert moved == frozenset()
