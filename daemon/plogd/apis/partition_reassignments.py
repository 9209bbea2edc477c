"""AlterPartitionReassignments (key 45) and ListPartitionReassignments (key 46), with one broker.

Serves versions 0-1 of the former, in which version 1 adds AllowReplicationFactorChange (KIP-860),
and version 0 of the latter.

controller/reassignments.py validates a reassignment. The only valid one assigns a partition to the
broker that already hosts it, and thus completes immediately.
"""

from __future__ import annotations

from plog.errors import KafkaError
from plog.wire.lazy_array import lazy_array
from plog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from plog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from plogd.apis.error_responses import refuse_at_top_level
from plogd.apis.request_context import RequestContext
from plogd.apis.sliced_requests import by_topic
from plogd.broker import Broker
from plogd.controller.reassignments import check_reassignment
from plogd.fair_queue import Slices
from plogd.ports import Later, spawn


def handle_alter_partition_reassignments(
    request: AlterPartitionReassignmentsRequest, context: RequestContext, broker: Broker
) -> Later[AlterPartitionReassignmentsResponse]:
    """Check each partition's new assignment; each partition has its own outcome."""
    broker.controller.check_active()
    return spawn(_alter(request, broker))


async def _alter(
    request: AlterPartitionReassignmentsRequest, broker: Broker
) -> AlterPartitionReassignmentsResponse:
    asked = await by_topic(
        request.topics,
        lambda topic: topic.name,
        lambda topic: topic.partitions,
        lambda partition: partition.partition_index,
        Slices(broker.fair_queue),
    )

    def of_topic(
        named: tuple[str, dict[int, list[ReassignablePartition]]],
    ) -> ReassignableTopicResponse:
        name, partitions = named
        # Of the elements for a repeated partition, the last one counts.
        responses = lazy_array(
            list(partitions.values()), lambda one: _reassign(name, one[-1], broker)
        )
        return ReassignableTopicResponse(name=name, partitions=responses)

    return AlterPartitionReassignmentsResponse(
        # KIP-860: the response repeats the value that the broker has applied.
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=lazy_array(list(asked.items()), of_topic),
    )


def _reassign(
    topic: str, asked: ReassignablePartition, broker: Broker
) -> ReassignablePartitionResponse:
    response = ReassignablePartitionResponse(
        partition_index=asked.partition_index, error_message=None
    )
    try:
        check_reassignment(
            broker.cache.topic(topic),
            asked.partition_index,
            asked.replicas,
            brokers=tuple(broker.cache.live_brokers),
        )
    except KafkaError as error:
        response.error_code, response.error_message = error.code, error.message
    return response


def handle_list_partition_reassignments(
    request: ListPartitionReassignmentsRequest, context: RequestContext, broker: Broker
) -> ListPartitionReassignmentsResponse:
    """Return an empty list."""
    broker.controller.check_active()
    # A reassignment completes before its response is sent, so none is ever in progress.
    return ListPartitionReassignmentsResponse(error_message=None)


refuse_alter_partition_reassignments = refuse_at_top_level(AlterPartitionReassignmentsResponse)


refuse_list_partition_reassignments = refuse_at_top_level(ListPartitionReassignmentsResponse)
