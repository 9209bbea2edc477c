"""DescribeProducers (key 61): the producer state of partitions.

Serves version 0. log/producer_state.py decides which producers are kept, and for how long. A
partition that is listed more than once is described once, because it can have thousands of
producers.
"""

from __future__ import annotations

from plog.errors import KafkaError
from plog.wire.lazy_array import lazy_array
from plog.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicRequest,
    TopicResponse,
)
from plogd.apis.request_context import RequestContext
from plogd.apis.sliced_requests import numbers_by_topic
from plogd.broker import Broker
from plogd.controller.topic_creation import validate_name
from plogd.fair_queue import Slices
from plogd.log import producer_state
from plogd.ports import Later, spawn

_NO_TRANSACTION = -1


def handle_describe_producers(
    request: DescribeProducersRequest, context: RequestContext, broker: Broker
) -> Later[DescribeProducersResponse]:
    """Describe the partitions; each has its own outcome."""
    return spawn(_describe(request, broker))


async def _describe(request: DescribeProducersRequest, broker: Broker) -> DescribeProducersResponse:
    asked = await numbers_by_topic(
        request.topics,
        lambda topic: topic.name,
        lambda topic: topic.partition_indexes,
        Slices(broker.fair_queue),
    )

    def of_topic(named: tuple[str, list[int]]) -> TopicResponse:
        name, numbers = named
        partitions = lazy_array(numbers, lambda number: _partition(name, number, broker))
        return TopicResponse(name=name, partitions=partitions)

    return DescribeProducersResponse(topics=lazy_array(list(asked.items()), of_topic))


def _partition(topic: str, number: int, broker: Broker) -> PartitionResponse:
    try:
        validate_name(topic)
        partition = broker.replica_manager.partition(topic, number)
        # Only the leader's state is current, as in Kafka: clients send this request to the leader.
        partition.check_leader()
    except KafkaError as error:
        return _error(number, error)
    # A copy, because appends can add producers between the slices of the encoding.
    producers = list(partition.log.producer_state.producers.values())
    return PartitionResponse(
        partition_index=number, active_producers=lazy_array(producers, _producer)
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
    """Reject all partitions with `error`."""

    def of_topic(topic: TopicRequest) -> TopicResponse:
        partitions = lazy_array(topic.partition_indexes, lambda number: _error(number, error))
        return TopicResponse(name=topic.name, partitions=partitions)

    return DescribeProducersResponse(topics=lazy_array(request.topics, of_topic))
