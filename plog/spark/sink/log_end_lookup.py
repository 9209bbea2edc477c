"""Lookup of log end offsets at the leaders: the ends of all records that they have appended.

ListOffsets returns the high watermark, which lags while replicas or disks do. An attempt of a task
that was killed may have left records above it, which become readable later.

Source: KIP-320; the end offset of the current leader epoch is the log end offset.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from plog.client.consumer.offset_lookup import CONSUMER, MAY_PASS
from plog.client.errors import error_about
from plog.client.network.cluster import Cluster
from plog.client.network.deadline import Deadline
from plog.errors import ErrorCode, KafkaError
from plog.types import TopicPartition
from plog.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

UNKNOWN_END: Final = -1


async def log_ends(
    cluster: Cluster, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the log end offset of each partition, or -1 if its leader does not know it.

    Retries until ``default.api.timeout.ms``, then raises the last error.
    """
    ends: dict[TopicPartition, int] = {}
    backoff = cluster.backoff()
    while left := [one for one in partitions if one not in ends]:
        problem: KafkaError | None = None
        for leader, asked in _by_leader(cluster, left).items():
            try:
                found = await _ask(cluster, leader, asked, backoff.deadline)
            except KafkaError as error:
                # The other leaders may answer. Only the partitions of this one are looked up again.
                problem = error
                continue
            ends |= found
        if len(ends) == len(partitions):
            break
        problem = problem or error_about(
            ErrorCode.LEADER_NOT_AVAILABLE, f"cannot look up the end of {left[0]}"
        )
        if not problem.retriable and problem.code not in MAY_PASS:
            raise problem
        await backoff.wait_or_raise(problem)
        # The leaders have probably moved.
        try:
            await cluster.refresh({one.topic for one in left}, deadline=backoff.deadline)
        except KafkaError as error:
            if not error.retriable:
                raise
        # The refresh may have used up the remaining time; another attempt would hide the reason.
        if backoff.is_over:
            await backoff.wait_or_raise(problem)
    return ends


def _by_leader(
    cluster: Cluster, partitions: Sequence[TopicPartition]
) -> Mapping[int, Sequence[TopicPartition]]:
    leaders: dict[int, list[TopicPartition]] = {}
    for one in partitions:
        leader = cluster.leader_of(one)
        if leader is not None:
            leaders.setdefault(leader, []).append(one)
    return leaders


async def _ask(
    cluster: Cluster, leader: int, asked: Sequence[TopicPartition], deadline: Deadline
) -> dict[TopicPartition, int]:
    """Return the ends that a leader knows. Raises KafkaError for a partition that it refuses."""
    connection = await cluster.connection(leader, deadline=deadline)
    if not connection.speaks(OffsetForLeaderEpochRequest):
        # A broker before Kafka 2.0.
        return dict.fromkeys(asked, UNKNOWN_END)
    response = await cluster.ask_node(
        leader, _request(cluster, asked), OffsetForLeaderEpochResponse, deadline=deadline
    )
    ends: dict[TopicPartition, int] = {}
    for topic in response.topics:
        for found in topic.partitions:
            one = TopicPartition(topic.topic, found.partition)
            if found.error_code:
                raise error_about(found.error_code, f"cannot look up the end of {one}")
            ends[one] = found.end_offset
    return ends


def _request(cluster: Cluster, asked: Sequence[TopicPartition]) -> OffsetForLeaderEpochRequest:
    topics: dict[str, list[OffsetForLeaderPartition]] = {}
    for one in asked:
        known = cluster.metadata.partition(one)
        epoch = -1 if known is None else known.leader_epoch
        # For its current epoch, a leader returns its log end. It also rejects the request if this
        # epoch, from the metadata, is old (KIP-320).
        topics.setdefault(one.topic, []).append(
            OffsetForLeaderPartition(
                partition=one.partition, current_leader_epoch=epoch, leader_epoch=epoch
            )
        )
    return OffsetForLeaderEpochRequest(
        replica_id=CONSUMER,
        topics=[OffsetForLeaderTopic(topic=name, partitions=each) for name, each in topics.items()],
    )
