"""DescribeProducers (key 61): the idempotent producers whose batches a partition remembers.

Version served 0. Which are remembered, and for how long, is log/producer_state.py's knowledge.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plog.errors import KafkaError
from plog.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from plogd.apis.context import RequestContext
from plogd.controller.topics import validate_name
from plogd.log import producer_state

if TYPE_CHECKING:
    from plogd.broker import Broker

_NO_TRANSACTION = -1


def handle_describe_producers(
    request: DescribeProducersRequest, context: RequestContext, broker: Broker
) -> DescribeProducersResponse:
    """Tell of each partition; an error is an answer, too."""
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[_partition(topic.name, n, broker) for n in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _partition(topic: str, number: int, broker: Broker) -> PartitionResponse:
    try:
        validate_name(topic)
        partition = broker.replica_manager.partition(topic, number)
        partition.check_leader()
    except KafkaError as error:
        return _error(number, error)
    producers = partition.log.producer_state.producers.values()
    return PartitionResponse(
        partition_index=number, active_producers=[_producer(one) for one in producers]
    )


def _producer(state: producer_state.ProducerState) -> ProducerState:
    first_offset = state.current_txn_first_offset
    return ProducerState(
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        last_sequence=state.last_sequence,
        last_timestamp=state.last_timestamp,
        coordinator_epoch=state.coordinator_epoch,
        current_txn_start_offset=_NO_TRANSACTION if first_offset is None else first_offset,
    )


def _error(number: int, error: KafkaError) -> PartitionResponse:
    return PartitionResponse(
        partition_index=number, error_code=error.code, error_message=error.message
    )


def refuse_describe_producers(
    request: DescribeProducersRequest, context: RequestContext, error: KafkaError
) -> DescribeProducersResponse:
    """The answer in which every partition gets `error`."""
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name, partitions=[_error(n, error) for n in topic.partition_indexes]
            )
            for topic in request.topics
        ]
    )
