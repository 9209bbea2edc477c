"""Partitions, logs, leaders and the cluster, compared with Apache Kafka."""

from __future__ import annotations

from typing import Any

import pytest

from plog.wire.api_keys import ApiKey
from plog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from plog.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from plog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from plog.wire.messages.describe_cluster import DescribeClusterRequest
from plog.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from plog.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from plog.wire.messages.describe_quorum import DescribeQuorumRequest, QuorumPartition, QuorumTopic
from plog.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribedTopic,
    DescribeTopicPartitionsRequest,
)
from plog.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from plog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from plog.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from plog.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.helpers.side_by_side import Pair
from tests.integration.kafka_comparison.test_records import (
    batch,
    create,
    fetch,
    list_offsets,
    produce,
)
from tests.integration.kafka_comparison.versions import lowest_and_highest

NOWHERE = "nowhere"


# -- records -------------------------------------------------------------------------------------


def delete_records(*asked: tuple[str, int, int]) -> DeleteRecordsRequest:
    topics: dict[str, list[DeleteRecordsPartition]] = {}
    for topic, number, offset in asked:
        wanted = DeleteRecordsPartition(partition_index=number, offset=offset)
        topics.setdefault(topic, []).append(wanted)
    return DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=name, partitions=found) for name, found in topics.items()],
        timeout_ms=30_000,
    )


@lowest_and_highest(ApiKey.DELETE_RECORDS)
def test_records_are_deleted_and_the_rest_is_readable(pair: Pair, version: int) -> None:
    name = f"deleted-records-{version}"
    create(pair, name)
    for value in (b"a", b"b", b"c", b"d"):
        pair.same(produce(name, batch(value, value)), 9)
    for offset in (3, 1, 3, 9, -2, -1, -1):
        pair.same(delete_records((name, 0, offset)), version)
        for timestamp in (-1, -2):  # Kafka includes deleted records in the largest timestamp.
            pair.same(list_offsets(name, timestamp), 7)
        for from_offset in (0, 2, 3, 8):
            pair.same(fetch(name, from_offset), 11)
    pair.same(produce(name, batch(b"e")), 9)
    pair.same(fetch(name, 8), 11)


@lowest_and_highest(ApiKey.DELETE_RECORDS)
def test_deletions_outside_the_log_get_the_same_results(pair: Pair, version: int) -> None:
    name = f"deleted-none-{version}"
    create(pair, name, 2)
    asked = delete_records((name, 0, 0), (name, 1, 1), (name, 7, 0), (NOWHERE, 0, 0))
    pair.same(asked, version, unordered=["topics", "partitions"])
    pair.same(DeleteRecordsRequest(topics=[]), version)


# -- leader epochs -------------------------------------------------------------------------------


@lowest_and_highest(ApiKey.OFFSET_FOR_LEADER_EPOCH)
def test_ends_of_leader_epochs_are_found(pair: Pair, version: int) -> None:
    name = f"epochs-{version}"
    create(pair, name)

    def ask(current: int, epoch: int, topic: str = name, number: int = 0) -> None:
        asked = OffsetForLeaderPartition(
            partition=number, current_leader_epoch=current, leader_epoch=epoch
        )
        pair.same(
            OffsetForLeaderEpochRequest(
                replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=[asked])]
            ),
            version,
        )

    for _ in range(2):
        for current, epoch in ((-1, 0), (0, 0), (-1, 1), (-1, -1), (1, 0), (-1, 77)):
            ask(current, epoch)
        pair.same(produce(name, batch(b"a", b"b")), 9)
    ask(-1, 0, number=7)
    ask(-1, 0, topic=NOWHERE)


# -- partitions ----------------------------------------------------------------------------------


def more(name: str, count: int, by_hand: list[list[int]] | None = None) -> CreatePartitionsTopic:
    chosen = [CreatePartitionsAssignment(broker_ids=brokers) for brokers in by_hand or ()]
    return CreatePartitionsTopic(
        name=name, count=count, assignments=None if by_hand is None else chosen
    )


@lowest_and_highest(ApiKey.CREATE_PARTITIONS)
@pytest.mark.parametrize("validate_only", [True, False])
def test_partitions_are_created_independently_per_topic(
    pair: Pair, version: int, validate_only: bool
) -> None:
    name = f"more-{version}-{validate_only}"
    letters = "abcdefghijk"
    for letter in letters:
        create(pair, f"{name}-{letter}", 2)
    asked = [
        more(f"{name}-a", 4),
        more(f"{name}-b", 2),
        more(f"{name}-c", 1),
        more(f"{name}-d", -1),
        more(f"{name}-e", 3, [[1]]),
        more(f"{name}-f", 4, [[1]]),
        more(f"{name}-g", 3, [[99]]),
        more(f"{name}-h", 3, [[1, 1]]),
        more(f"{name}-i", 3, [[]]),
        more(f"{name}-j", 3, []),
        more(f"{name}-k", 3),
        more(f"{name}-k", 4),
        more(NOWHERE, 3),
    ]
    request = CreatePartitionsRequest(topics=asked, timeout_ms=30_000, validate_only=validate_only)
    answer = pair.same(request, version, unordered=["results"])
    assert len(answer["results"]) == len(letters) + 1


@lowest_and_highest(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_topics_are_described_in_pages(pair: Pair, version: int, limit: int) -> None:
    names = [f"pages-{limit}-{letter}" for letter in "ab"]
    for name in names:
        create(pair, name, 3)
    asked = [*names, "not/legal", "zzz-nowhere", names[0]]
    cursor: Cursor | None = None
    for _ in range(9):
        request = DescribeTopicPartitionsRequest(
            topics=[DescribedTopic(name=name) for name in asked],
            response_partition_limit=limit,
            cursor=cursor,
        )
        next_cursor = pair.same(request, version)["next_cursor"]
        if next_cursor is None:
            return
        cursor = Cursor(**{k: next_cursor[k] for k in ("topic_name", "partition_index")})
    raise AssertionError("the pages do not end")


@lowest_and_highest(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
def test_invalid_cursors_get_the_same_response(pair: Pair, version: int) -> None:
    create(pair, "cursors")
    for topic, number in (("else", 0), ("cursors", -1), ("cursors", 99)):
        request = DescribeTopicPartitionsRequest(
            topics=[DescribedTopic(name="cursors")],
            cursor=Cursor(topic_name=topic, partition_index=number),
        )
        pair.same(request, version)


@lowest_and_highest(ApiKey.ELECT_LEADERS)
def test_elections_have_the_same_results(pair: Pair, version: int) -> None:
    name = f"elections-{version}"
    create(pair, name, 2)
    for kind in (0, 1) if version else (0,):
        topics = [
            TopicPartitions(topic=name, partitions=[0, 1, 7]),
            TopicPartitions(topic=NOWHERE, partitions=[0]),
        ]
        request = ElectLeadersRequest(election_type=kind, topic_partitions=topics)
        pair.same(request, version, unordered=["replica_election_results"])
    ours, kafkas = pair.ask(ElectLeadersRequest(topic_partitions=None), version)
    results = [
        [one for topic in side["replica_election_results"] for one in topic["partition_result"]]
        for side in (ours, kafkas)
    ]
    assert results == [[], []]


@lowest_and_highest(ApiKey.ELECT_LEADERS, lowest=1)
def test_unknown_election_type_is_refused(pair: Pair, version: int) -> None:
    topics = [TopicPartitions(topic=NOWHERE, partitions=[0])]
    pair.same(ElectLeadersRequest(election_type=9, topic_partitions=topics), version)


def reassign(name: str, number: int, replicas: list[int] | None) -> ReassignableTopic:
    wanted = ReassignablePartition(partition_index=number, replicas=replicas)
    return ReassignableTopic(name=name, partitions=[wanted])


@lowest_and_highest(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
def test_reassignments_have_the_same_results(pair: Pair, version: int) -> None:
    name = f"reassigned-{version}"
    create(pair, name)
    for may_change in (True, False) if version else (True,):
        for replicas in ([1], [99], [1, 99], [1, 1], [], None):
            topics = [reassign(name, 0, replicas)]
            request = AlterPartitionReassignmentsRequest(
                topics=topics, allow_replication_factor_change=may_change
            )
            pair.same(request, version)
    topics = [reassign(name, 7, [1]), reassign(NOWHERE, 0, None)]
    pair.same(AlterPartitionReassignmentsRequest(topics=topics), version)


@lowest_and_highest(ApiKey.LIST_PARTITION_REASSIGNMENTS)
def test_no_reassignment_is_in_progress(pair: Pair, version: int) -> None:
    create(pair, "not-moving")
    one = ListPartitionReassignmentsTopics(name="not-moving", partition_indexes=[0, 7])
    none = ListPartitionReassignmentsTopics(name=NOWHERE, partition_indexes=[0])
    for topics in (None, [], [one, none]):
        pair.same(ListPartitionReassignmentsRequest(topics=topics), version)


# -- logs and producers --------------------------------------------------------------------------


@lowest_and_highest(ApiKey.DESCRIBE_LOG_DIRS, lowest=1)
def test_log_directories_are_described(pair: Pair, version: int) -> None:
    name = f"log-dirs-{version}"
    create(pair, name, 2)
    pair.same(produce(name, batch(b"a" * 100)), 9)
    differing = ("log_dir", "total_bytes", "usable_bytes")
    for asked in (
        [DescribableLogDirTopic(topic=name, partitions=[0, 1, 7])],
        [DescribableLogDirTopic(topic=NOWHERE, partitions=[0])],
        [DescribableLogDirTopic(topic="__cluster_metadata", partitions=[0])],
        [],
    ):
        request = DescribeLogDirsRequest(topics=asked)
        pair.same(request, version, by_kind=differing, unordered=["partitions"])
    everything, _ = pair.ask(DescribeLogDirsRequest(topics=None), version)
    assert name in {topic["name"] for topic in everything["results"][0]["topics"]}


@lowest_and_highest(ApiKey.DESCRIBE_PRODUCERS)
def test_producers_are_described(pair: Pair, version: int) -> None:
    create(pair, "producers", 2)
    known = {"producer_id": 4711, "producer_epoch": 3}
    pair.same(produce("producers", batch(b"a", b"b", base_sequence=0, **known)), 9)
    pair.same(produce("producers", batch(b"c", base_sequence=2, **known)), 9)
    pair.same(produce("producers", batch(b"nobody in particular")), 9)
    topics = [
        TopicRequest(name="producers", partition_indexes=[0, 1, 7]),
        TopicRequest(name=NOWHERE, partition_indexes=[0]),
        TopicRequest(name="not/legal", partition_indexes=[0]),
    ]
    pair.same(DescribeProducersRequest(topics=topics), version)


# -- the cluster ---------------------------------------------------------------------------------


@lowest_and_highest(ApiKey.DESCRIBE_CLUSTER)
def test_cluster_is_described(pair: Pair, version: int) -> None:
    for operations in (False, True):
        request = DescribeClusterRequest(include_cluster_authorized_operations=operations)
        pair.same(request, version)


@lowest_and_highest(ApiKey.DESCRIBE_CLUSTER, lowest=1)
def test_other_endpoint_types_get_the_same_response(pair: Pair, version: int) -> None:
    for endpoint_type in (0, 2, 3):
        pair.same(DescribeClusterRequest(endpoint_type=endpoint_type), version)


@lowest_and_highest(ApiKey.DESCRIBE_CLUSTER, lowest=2)
def test_fenced_brokers_are_described(pair: Pair, version: int) -> None:
    pair.same(DescribeClusterRequest(include_fenced_brokers=True), version)


def quorum(*names: tuple[str, int]) -> DescribeQuorumRequest:
    return DescribeQuorumRequest(
        topics=[
            QuorumTopic(topic_name=name, partitions=[QuorumPartition(partition_index=number)])
            for name, number in names
        ]
    )


@lowest_and_highest(ApiKey.DESCRIBE_QUORUM)
def test_quorum_is_described(pair: Pair, version: int) -> None:
    """The positions of the logs differ, and Kafka's quorum has a separate listener."""
    pair.same(
        quorum(("__cluster_metadata", 0)),
        version,
        by_kind=[
            "high_watermark",
            "last_caught_up_timestamp",
            "last_fetch_timestamp",
            "leader_epoch",
            "log_end_offset",
            "name",
        ],
        ignoring=["replica_directory_id"],  # Kafka's voters have one only in a dynamic quorum.
    )
    for names in ([("__cluster_metadata", 1)], [("t", 0)], [("__cluster_metadata", 0), ("t", 0)]):
        pair.same(quorum(*names), version)


def update(*levels: tuple[str, int], **fields: Any) -> UpdateFeaturesRequest:
    updates = [FeatureUpdateKey(feature=name, max_version_level=level) for name, level in levels]
    return UpdateFeaturesRequest(feature_updates=updates, **fields)


@lowest_and_highest(ApiKey.UPDATE_FEATURES)
def test_unsupported_feature_levels_are_refused(pair: Pair, version: int) -> None:
    """The supported levels differ; the refusal of other levels does not."""
    for request in (update(("no.such.feature", 1)), update(("metadata.version", 999)), update()):
        pair.same(request, version)
    fields = {"allow_downgrade": True} if not version else {"upgrade_type": 2}
    old = FeatureUpdateKey(feature="metadata.version", max_version_level=1, **fields)
    pair.same(UpdateFeaturesRequest(feature_updates=[old]), version)


@lowest_and_highest(ApiKey.UPDATE_FEATURES, lowest=1)
def test_feature_updates_are_validated_only(pair: Pair, version: int) -> None:
    pair.same(update(("metadata.version", 999), validate_only=True), version)
    invalid_type = FeatureUpdateKey(
        feature="metadata.version", max_version_level=11, upgrade_type=9
    )
    pair.same(UpdateFeaturesRequest(feature_updates=[invalid_type]), version)
