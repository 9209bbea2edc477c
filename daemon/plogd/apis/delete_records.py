"""DeleteRecords (key 21): each partition named is to begin at an offset, or at its high watermark.

Versions served 0-2.

  2 flexible

What may be deleted, and when it is, is replica/record_deletion.py's knowledge. A partition is
answered when no crash can bring its records back; a disk gets half a minute for that even if the
request's timeout, which is about followers, is shorter. A partition named twice is left alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plog.errors import InvalidRequest, KafkaError, RequestTimedOut
from plog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from plogd.apis.context import RequestContext
from plogd.controller.waiting import within
from plogd.ports import Later, failed, spawn
from plogd.replica.record_deletion import delete_records

if TYPE_CHECKING:
    from plogd.broker import Broker

_NO_LOW_WATERMARK = -1
_OWN_DISK_TIMEOUT_MS = 30_000


def handle_delete_records(
    request: DeleteRecordsRequest, context: RequestContext, broker: Broker
) -> Later[DeleteRecordsResponse]:
    """Begin with every partition, then wait for all."""
    asked = _by_topic(request)
    timeout_ms = max(request.timeout_ms, _OWN_DISK_TIMEOUT_MS)
    deletions = {
        topic: {
            number: _delete(topic, ones, timeout_ms, broker) for number, ones in ones_by.items()
        }
        for topic, ones_by in asked.items()
    }
    return spawn(_respond(deletions))


def _by_topic(
    request: DeleteRecordsRequest,
) -> dict[str, dict[int, list[DeleteRecordsPartition]]]:
    """What is asked of each partition, wherever in the request it stands."""
    asked: dict[str, dict[int, list[DeleteRecordsPartition]]] = {}
    for topic in request.topics:
        partitions = asked.setdefault(topic.name, {})
        for partition in topic.partitions:
            partitions.setdefault(partition.partition_index, []).append(partition)
    return asked


def _delete(
    topic: str, asked: list[DeleteRecordsPartition], timeout_ms: int, broker: Broker
) -> Later[int]:
    """Where the partition begins in the end."""
    if len(asked) > 1:
        return failed(InvalidRequest("a partition is named twice"))
    try:
        partition = broker.replica_manager.partition(topic, asked[0].partition_index)
    except KafkaError as error:
        return failed(error)
    return within(
        spawn(delete_records(partition, asked[0].offset, broker.log_manager)),
        timeout_ms,
        broker.timers,
        lambda: RequestTimedOut("the disk has not taken the partition's new start yet"),
    )


async def _respond(deletions: dict[str, dict[int, Later[int]]]) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic,
                partitions=[await _result(number, later) for number, later in laters.items()],
            )
            for topic, laters in deletions.items()
        ]
    )


async def _result(number: int, deletion: Later[int]) -> DeleteRecordsPartitionResult:
    try:
        low_watermark = await deletion
    except KafkaError as error:
        return _error(number, error)
    return DeleteRecordsPartitionResult(partition_index=number, low_watermark=low_watermark)


def _error(number: int, error: KafkaError) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=number, low_watermark=_NO_LOW_WATERMARK, error_code=error.code
    )


def refuse_delete_records(
    request: DeleteRecordsRequest, context: RequestContext, error: KafkaError
) -> DeleteRecordsResponse:
    """The answer in which every partition gets `error`."""
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic, partitions=[_error(number, error) for number in partitions]
            )
            for topic, partitions in _by_topic(request).items()
        ]
    )
