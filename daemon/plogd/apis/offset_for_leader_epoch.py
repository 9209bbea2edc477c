"""OffsetForLeaderEpoch (key 23): where a leader epoch's records end, so that a client sees a cut.

Versions served 2-4.

  2 the epoch the client knows (KIP-320)      3 who asks      4 flexible

The end of the present epoch is the log's end, which may be above the high watermark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plog.errors import KafkaError
from plog.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from plogd.apis.context import RequestContext

if TYPE_CHECKING:
    from plogd.broker import Broker


def handle_offset_for_leader_epoch(
    request: OffsetForLeaderEpochRequest, context: RequestContext, broker: Broker
) -> OffsetForLeaderEpochResponse:
    """Look up every partition; an error is an answer, too."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_end(topic.topic, asked, broker) for asked in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _end(topic: str, asked: OffsetForLeaderPartition, broker: Broker) -> EpochEndOffset:
    try:
        partition = broker.replica_manager.partition(topic, asked.partition)
        partition.check_leader(asked.current_leader_epoch)
    except KafkaError as error:
        return EpochEndOffset(partition=asked.partition, error_code=error.code)
    epoch, end_offset = partition.end_offset_for_epoch(asked.leader_epoch)
    return EpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=end_offset)


def refuse_offset_for_leader_epoch(
    request: OffsetForLeaderEpochRequest, context: RequestContext, error: KafkaError
) -> OffsetForLeaderEpochResponse:
    """The answer in which every partition gets `error`."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    EpochEndOffset(partition=asked.partition, error_code=error.code)
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
