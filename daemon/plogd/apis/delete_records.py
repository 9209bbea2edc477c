"""DeleteRecords (key 21): delete records before an offset, or before the high watermark.

Serves versions 0-2.

  2 flexible

replica/record_deletion.py validates the offsets. The response is sent when a crash can no longer
restore the deleted records on the leader, and all other live replicas have deleted them, too. A
partition that is listed more than once gets an error and remains
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
from plogd.ports import Later, settle, spawn
from plogd.replica.partition import Partition
from plogd.replica.record_deletion import HIGH_WATERMARK, delete_records

_NO_LOW_WATERMARK = -1
"""Kafka's DeleteRecordsResponse.INVALID_LOW_WATERMARK."""
# A request's timeout is meant for followers. Even if it is shorter than this, the broker waits for
# its own disk.
_OWN_DISK_TIMEOUT_MS = 30_000


def handle_delete_records(
    request: DeleteRecordsRequest, context: RequestContext, broker: Broker
) -> Later[DeleteRecordsResponse]:
    """Delete records from the partitions, a few at a time."""
    return spawn(_delete_all(request, broker))


async def _delete_all(request: DeleteRecordsRequest, broker: Broker) -> DeleteRecordsResponse:
    until_ms = broker.clock.monotonic_ms() + request.timeout_ms
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
        lambda named: _delete(*named, until_ms, broker),
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
    topic: str, asked: list[DeleteRecordsPartition], until_ms: float, broker: Broker
) -> Later[int]:
    """Delete records from one partition; return the smallest log start offset of its replicas."""
    if len(asked) > 1:
        # Kafka silently uses the last offset. Deleted records cannot be restored, so a request that
        # may be a mistake deletes nothing.
        raise InvalidRequest("the request lists this partition more than once")
    partition = broker.replica_manager.partition(topic, asked[0].partition_index)
    return spawn(_delete_on_replicas(partition, asked[0].offset, until_ms, broker))


async def _delete_on_replicas(
    partition: Partition, offset: int, until_ms: float, broker: Broker
) -> int:
    now_ms = broker.clock.monotonic_ms
    # A timeout ends only the wait; the deletion itself continues.
    start_offset = await within(
        spawn(delete_records(partition, offset, broker.log_manager)),
        max(until_ms - now_ms(), _OWN_DISK_TIMEOUT_MS),
        broker.timers,
        lambda: RequestTimedOut("the new log start offset is not durable yet"),
    )
    # The log may have started after the offset before.
    required = start_offset if offset == HIGH_WATERMARK else offset
    left_ms = max(0.0, until_ms - now_ms())
    return await settle(broker.replica_manager.replicas_deleted(partition, required, left_ms))


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
