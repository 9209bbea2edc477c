"""Convert OffsetCommit and OffsetFetch messages in all versions to and from plain values."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import groupby
from operator import attrgetter

from plog.client.group.member_state import Generation
from plog.client.network.connection import Connection
from plog.client.values import OffsetAndMetadata
from plog.errors import UnsupportedVersion
from plog.types import TopicPartition
from plog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from plog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
)

# Versions that added static members (KIP-345), require_stable (KIP-447) and requests for many
# groups (KIP-709).
_FIRST_STATIC_COMMIT = 7
_FIRST_STABLE_FETCH = 7
_FIRST_BATCH_FETCH = 8
_NO_EPOCH = -1


def commit_request(
    group_id: str,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    generation: Generation,
    connection: Connection,
) -> OffsetCommitRequest:
    """Return a request to commit `offsets`.

    Raises UnsupportedVersion, and ValueError for a negative offset.
    """
    version = connection.version_of(OffsetCommitRequest)
    if generation.group_instance_id is not None and version < _FIRST_STATIC_COMMIT:
        raise UnsupportedVersion(
            f"the broker at {connection.address} does not support static members;"
            " remove group.instance.id"
        )
    wrong = next((one for one, offset in offsets.items() if offset.offset < 0), None)
    if wrong is not None:
        raise ValueError(f"cannot commit offset {offsets[wrong].offset} of {wrong}: it is negative")
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation.generation_id,
        member_id=generation.member_id,
        group_instance_id=generation.group_instance_id,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=one.partition,
                        committed_offset=offsets[one].offset,
                        committed_leader_epoch=_epoch(offsets[one].leader_epoch),
                        committed_metadata=offsets[one].metadata,
                    )
                    for one in group
                ],
            )
            # `groupby` needs sorted input; partitions sort by topic first.
            for topic, group in groupby(sorted(offsets), attrgetter("topic"))
        ],
    )


def commit_results(answer: OffsetCommitResponse) -> dict[TopicPartition, int]:
    """Return the error code of each partition."""
    return {
        TopicPartition(topic.name, partition.partition_index): partition.error_code
        for topic in answer.topics
        for partition in topic.partitions
    }


def fetch_request(
    group_id: str,
    partitions: Collection[TopicPartition],
    connection: Connection,
    *,
    require_stable: bool,
) -> OffsetFetchRequest:
    """Return a request for the committed offsets of `partitions`."""
    version = connection.version_of(OffsetFetchRequest)
    # Brokers before KIP-447 cannot wait for pending transactions.
    stable = require_stable and version >= _FIRST_STABLE_FETCH
    by_topic = [
        (topic, [one.partition for one in group])
        for topic, group in groupby(sorted(set(partitions)), attrgetter("topic"))
    ]
    if version < _FIRST_BATCH_FETCH:
        return OffsetFetchRequest(
            group_id=group_id,
            topics=[
                OffsetFetchRequestTopic(name=topic, partition_indexes=numbers)
                for topic, numbers in by_topic
            ],
            require_stable=stable,
        )
    topics = [
        OffsetFetchRequestTopics(name=topic, partition_indexes=numbers)
        for topic, numbers in by_topic
    ]
    group = OffsetFetchRequestGroup(group_id=group_id, topics=topics)
    return OffsetFetchRequest(groups=[group], require_stable=stable)


def fetch_results(
    answer: OffsetFetchResponse, group_id: str
) -> tuple[int, dict[TopicPartition, tuple[int, OffsetAndMetadata | None]]]:
    """Return the group's error code, and each partition's error code and offset or None."""
    # From version 8 on, the results are in `groups`; in earlier versions, they are at the top level
    # (KIP-709).
    for group in answer.groups:
        if group.group_id == group_id:
            return group.error_code, {
                TopicPartition(topic.name, number): result
                for topic in group.topics
                for number, result in _results(topic.partitions)
            }
    return answer.error_code, {
        TopicPartition(topic.name, number): result
        for topic in answer.topics
        for number, result in _results(topic.partitions)
    }


def _results(
    partitions: Iterable[OffsetFetchResponsePartition | OffsetFetchResponsePartitions],
) -> Iterable[tuple[int, tuple[int, OffsetAndMetadata | None]]]:
    for one in partitions:
        offset = None
        # -1 means that the group has no committed offset.
        if one.committed_offset >= 0:
            epoch = one.committed_leader_epoch
            offset = OffsetAndMetadata(
                one.committed_offset, one.metadata or "", None if epoch < 0 else epoch
            )
        yield one.partition_index, (one.error_code, offset)


def _epoch(epoch: int | None) -> int:
    return _NO_EPOCH if epoch is None else epoch
