"""DeleteRecords (key 21): each partition named is to begin at an offset, or at its high watermark.

Versions served 0-2.

  2 flexible

What may be deleted, and when it is, is replica/record_deletion.py's knowledge. A partition is
answered when no crash can bring its records back; a disk gets half a minute for that even if the
request's timeout, which is about followers, is shorter. A partition named twice is left alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from plog.errors import InvalidRequest, KafkaError, RequestTimedOut
from plog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from plogd.apis.context import RequestContext
from plogd.apis.in_slices import WRITES_AT_ONCE, ask_in_slices
from plogd.controller.waiting import within
from plogd.ports import Later, spawn
from plogd.replica.record_deletion import delete_records

if TYPE_CHECKING:
    from plogd.broker import Broker

_NO_LOW_WATERMARK = -1
_OWN_DISK_TIMEOUT_MS = 30_000

_Asked: TypeAlias = dict[str, dict[int, list[DeleteRecordsPartition]]]
"""What is asked of each partition, wherever in the request it stands."""


def handle_delete_records(
    request: DeleteRecordsRequest, context: RequestContext, broker: Broker
) -> Later[DeleteRecordsResponse]:
    """Begin with every partition, then wait for all; many at once take several rounds."""
    timeout_ms = max(request.timeout_ms, _OWN_DISK_TIMEOUT_MS)
    return spawn(_delete_all(_by_topic(request), timeout_ms, broker))


async def _delete_all(asked: _Asked, timeout_ms: int, broker: Broker) -> DeleteRecordsResponse:
    partitions = [(topic, number) for topic, numbers in asked.items() for number in numbers]

    def delete(partition: tuple[str, int]) -> Later[int]:
        topic, number = partition
        return _delete(topic, asked[topic][number], timeout_ms, broker)

    answers: list[int | KafkaError]
    answers = await ask_in_slices(partitions, delete, broker, WRITES_AT_ONCE)
    outcomes = iter(answers)
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic, partitions=[_result(number, next(outcomes)) for number in numbers]
            )
            for topic, numbers in asked.items()
        ]
    )


def _by_topic(request: DeleteRecordsRequest) -> _Asked:
    asked: _Asked = {}
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
        raise InvalidRequest("a partition is named twice")
    partition = broker.replica_manager.partition(topic, asked[0].partition_index)
    return within(
        spawn(delete_records(partition, asked[0].offset, broker.log_manager)),
        timeout_ms,
        broker.timers,
        lambda: RequestTimedOut("the disk has not taken the partition's new start yet"),
    )


def _result(number: int, outcome: int | KafkaError) -> DeleteRecordsPartitionResult:
    if isinstance(outcome, KafkaError):
        return _error(number, outcome)
    return DeleteRecordsPartitionResult(partition_index=number, low_watermark=outcome)


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
