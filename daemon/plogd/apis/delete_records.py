"""DeleteRecords (key 21): delete records before an offset, or before the high watermark.

Serves versions 0-2.

  2 flexible

replica/record_deletion.py validates the offsets. The response is sent when a crash can no longer
restore the deleted records. A partition that is listed more than once gets an error and remains
unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence

from plog.errors import InvalidRequest, KafkaError, RequestTimedOut
from plog.wire.lazy_array import lazy_array
from plog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)
from plogd.apis.request_context import RequestContext
from plogd.apis.sliced_requests import ask_in_slices, by_topic, grouped
from plogd.broker import Broker
from plogd.concurrency import within
from plogd.fair_queue import Slices
from plogd.ports import Later, spawn
from plogd.replica.record_deletion import delete_records

_NO_LOW_WATERMARK = -1
"""Kafka's DeleteRecordsResponse.INVALID_LOW_WATERMARK."""
# A request's timeout is meant for followers. Even if it is shorter than this, the broker waits for
# its own disk.
_OWN_DISK_TIMEOUT_MS = 30_000


def handle_delete_records(
    request: DeleteRecordsRequest, context: RequestContext, broker: Broker
) -> Later[DeleteRecordsResponse]:
    """Delete records from the partitions, a few at a time."""
    return spawn(_delete_all(request, max(request.timeout_ms, _OWN_DISK_TIMEOUT_MS), broker))


async def _delete_all(
    request: DeleteRecordsRequest, timeout_ms: int, broker: Broker
) -> DeleteRecordsResponse:
    slices = Slices(broker.fair_queue)
    asked = await by_topic(
        request.topics,
        lambda topic: topic.name,
        lambda topic: topic.partitions,
        lambda partition: partition.partition_index,
        slices,
    )
    answers = await ask_in_slices(
        ((topic, one) for topic, partitions in asked.items() for one in partitions.values()),
        lambda named: _delete(*named, timeout_ms, broker),
        broker,
    )
    answered = await grouped(asked, answers, slices)

    def of_topic(outcomes: tuple[str, Sequence[int | KafkaError]]) -> DeleteRecordsTopicResult:
        name, of_partitions = outcomes
        results = list(zip(asked[name], of_partitions, strict=True))
        return DeleteRecordsTopicResult(
            name=name, partitions=lazy_array(results, lambda one: _result(*one))
        )

    return DeleteRecordsResponse(topics=lazy_array(answered, of_topic))


def _delete(
    topic: str, asked: list[DeleteRecordsPartition], timeout_ms: int, broker: Broker
) -> Later[int]:
    """Delete records from one partition; return its new log start offset."""
    if len(asked) > 1:
        # Kafka silently uses the last offset. Deleted records cannot be restored, so a request that
        # may be a mistake deletes nothing.
        raise InvalidRequest("the request lists this partition more than once")
    partition = broker.replica_manager.partition(topic, asked[0].partition_index)
    # A timeout ends only the wait; the deletion itself continues.
    return within(
        spawn(delete_records(partition, asked[0].offset, broker.log_manager)),
        timeout_ms,
        broker.timers,
        lambda: RequestTimedOut("the new log start offset is not durable yet"),
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
    """Reject all partitions with `error`."""

    def of_topic(topic: DeleteRecordsTopic) -> DeleteRecordsTopicResult:
        results = lazy_array(topic.partitions, lambda one: _error(one.partition_index, error))
        return DeleteRecordsTopicResult(name=topic.name, partitions=results)

    return DeleteRecordsResponse(topics=lazy_array(request.topics, of_topic))
