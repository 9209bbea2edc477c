"""OffsetForLeaderEpoch (key 23): end offsets of leader epochs, which reveal truncation to clients.

Serves versions 2-4.

  2 current leader epoch (KIP-320)      3 replica id      4 flexible
"""

from __future__ import annotations

from plog.errors import KafkaError
from plog.wire.lazy_array import lazy_array
from plog.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
    OffsetForLeaderTopicResult,
)
from plogd.apis.request_context import RequestContext
from plogd.apis.sliced_requests import by_topic
from plogd.broker import Broker
from plogd.fair_queue import Slices
from plogd.ports import Later, spawn
from plogd.replica.divergence import end_offset_for_epoch


def handle_offset_for_leader_epoch(
    request: OffsetForLeaderEpochRequest, context: RequestContext, broker: Broker
) -> Later[OffsetForLeaderEpochResponse]:
    """Look up each partition once, even if it is listed repeatedly; return all outcomes."""
    return spawn(_look_up(request, broker))


async def _look_up(
    request: OffsetForLeaderEpochRequest, broker: Broker
) -> OffsetForLeaderEpochResponse:
    asked = await by_topic(
        request.topics,
        lambda topic: topic.topic,
        lambda topic: topic.partitions,
        lambda partition: partition.partition,
        Slices(broker.fair_queue),
    )

    def of_topic(
        named: tuple[str, dict[int, list[OffsetForLeaderPartition]]],
    ) -> OffsetForLeaderTopicResult:
        name, partitions = named
        # Of the elements for a repeated partition, the last one counts.
        ends = lazy_array(list(partitions.values()), lambda one: _end(name, one[-1], broker))
        return OffsetForLeaderTopicResult(topic=name, partitions=ends)

    return OffsetForLeaderEpochResponse(topics=lazy_array(list(asked.items()), of_topic))


def _end(topic: str, asked: OffsetForLeaderPartition, broker: Broker) -> EpochEndOffset:
    try:
        partition = broker.replica_manager.partition(topic, asked.partition)
        # KIP-320: a client with an outdated leader epoch must first refresh its metadata, because
        # its position may belong to a log that another leader has truncated.
        partition.check_leader(asked.current_leader_epoch)
    except KafkaError as error:
        return EpochEndOffset(partition=asked.partition, error_code=error.code)
    # The current epoch ends at the log end offset, which can be above the high watermark.
    epoch, end_offset = end_offset_for_epoch(partition, asked.leader_epoch)
    return EpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=end_offset)


def refuse_offset_for_leader_epoch(
    request: OffsetForLeaderEpochRequest, context: RequestContext, error: KafkaError
) -> OffsetForLeaderEpochResponse:
    """Reject all partitions with `error`."""

    def refused(asked: OffsetForLeaderPartition) -> EpochEndOffset:
        return EpochEndOffset(partition=asked.partition, error_code=error.code)

    def of_topic(topic: OffsetForLeaderTopic) -> OffsetForLeaderTopicResult:
        return OffsetForLeaderTopicResult(
            topic=topic.topic, partitions=lazy_array(topic.partitions, refused)
        )

    return OffsetForLeaderEpochResponse(topics=lazy_array(request.topics, of_topic))
