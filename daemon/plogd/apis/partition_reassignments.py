"""AlterPartitionReassignments (key 45) and ListPartitionReassignments (key 46), with one broker.

Versions served 0-1 and 0.

  1 whether the number of replicas may change (KIP-860)

What may be asked for is controller/reassignments.py's knowledge: a partition may be assigned to
where it is, which is done at once. So none is ever being moved, and the list of those is empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plog.errors import KafkaError
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
from plogd.apis.context import RequestContext
from plogd.apis.refusals import refuse_at_top_level
from plogd.controller.reassignments import check_reassignment

if TYPE_CHECKING:
    from plogd.broker import Broker


def handle_alter_partition_reassignments(
    request: AlterPartitionReassignmentsRequest, context: RequestContext, broker: Broker
) -> AlterPartitionReassignmentsResponse:
    """Tell of each partition whether it is where it is to be."""
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[_reassign(topic.name, asked, broker) for asked in topic.partitions],
            )
            for topic in request.topics
        ],
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
            brokers=(broker.config.node_id,),
        )
    except KafkaError as error:
        response.error_code, response.error_message = error.code, error.message
    return response


def handle_list_partition_reassignments(
    request: ListPartitionReassignmentsRequest, context: RequestContext, broker: Broker
) -> ListPartitionReassignmentsResponse:
    """None: a reassignment is over before it is answered."""
    return ListPartitionReassignmentsResponse(error_message=None)


refuse_alter_partition_reassignments = refuse_at_top_level(AlterPartitionReassignmentsResponse)


refuse_list_partition_reassignments = refuse_at_top_level(ListPartitionReassignmentsResponse)
