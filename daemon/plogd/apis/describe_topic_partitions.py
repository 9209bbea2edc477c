"""DescribeTopicPartitions (key 75): topics by name, in pages of partitions (KIP-966).

Serves version 0. A page contains as many partitions as the client requests, up to
``max.request.partition.size.limit``; the cursor in the response is the start of the next page. A
partition has no leader in the response if clients of the listener cannot reach it
(listener_view.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from plog.errors import InvalidRequest, KafkaError, UnknownTopicOrPartition
from plog.wire.lazy_array import lazy_array
from plog.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from plogd.apis.listener_view import ListenerView, PartitionView
from plogd.apis.metadata import TOPIC_OPERATIONS
from plogd.apis.request_context import RequestContext
from plogd.broker import Broker
from plogd.controller.topic_creation import validate_name
from plogd.fair_queue import Slices
from plogd.metadata.cache import INTERNAL_TOPICS, PartitionState, TopicState
from plogd.ports import Later, spawn

_NAME = attrgetter("name")


def handle_describe_topic_partitions(
    request: DescribeTopicPartitionsRequest, context: RequestContext, broker: Broker
) -> Later[DescribeTopicPartitionsResponse]:
    """Return the page that starts at the cursor."""
    return spawn(_describe(request, ListenerView(context.connection, broker), broker))


async def _describe(
    request: DescribeTopicPartitionsRequest, view: ListenerView, broker: Broker
) -> DescribeTopicPartitionsResponse:
    slices = Slices(broker.fair_queue)
    names = await _names(request, broker, slices)
    # At least one partition per page, as in Kafka: otherwise, a client would never reach the end.
    limit = min(broker.config.max_request_partition_size_limit, request.response_partition_limit)
    return await _page(names, request.cursor, max(1, limit), view, broker, slices)


async def _names(
    request: DescribeTopicPartitionsRequest, broker: Broker, slices: Slices
) -> list[str]:
    """Return the sorted topic names from the cursor on, including those of missing topics."""
    cursor = request.cursor
    first = "" if cursor is None else cursor.topic_name
    if cursor is not None and cursor.partition_index < 0:
        raise InvalidRequest(f"invalid cursor: partition {cursor.partition_index}")
    if not request.topics:
        # The cache sorts its topics. Pages need a stable order, because a cursor contains only a
        # name.
        return [x.name async for x in slices.over(broker.cache.topics()) if x.name >= first]
    names = {topic.name async for topic in slices.over(request.topics)}
    if cursor is not None and first not in names:
        # As in Kafka's DescribeTopicPartitionsRequestHandler: such a cursor is from another
        # request.
        raise InvalidRequest(f"invalid cursor: topic {first} is not one of the requested topics")
    return sorted([name async for name in slices.over(names) if name >= first])


async def _page(
    names: Sequence[str],
    cursor: Cursor | None,
    limit: int,
    view: ListenerView,
    broker: Broker,
    slices: Slices,
) -> DescribeTopicPartitionsResponse:
    response = DescribeTopicPartitionsResponse()
    room = limit
    async for name in slices.over(names):
        if not room:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        state = broker.cache.topic(name)
        # As in Kafka, a missing topic does not count toward the page size.
        if state is None:
            response.topics.append(_unknown(name))
            continue
        start = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        states = state.partitions[start : start + room]
        response.topics.append(_topic(state, states, view))
        # The cursor names the next partition, not the last one, so that no partition is sent twice.
        if start + room < len(state.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=start + room)
            break
        room -= len(states)
    return response


def _topic(
    topic: TopicState, states: Sequence[PartitionState], view: ListenerView
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=lazy_array(
            states, lambda state: _partition(state, view.partition(topic.name, state))
        ),
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _partition(
    state: PartitionState, view: PartitionView
) -> DescribeTopicPartitionsResponsePartition:
    # As in Kafka, without the error code.
    leader, _, offline_replicas = view
    return DescribeTopicPartitionsResponsePartition(
        partition_index=state.partition,
        leader_id=leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        # Only in-sync replicas can become leaders: plog does not maintain the ELR of KIP-966.
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=offline_replicas,
    )


def _unknown(name: str) -> DescribeTopicPartitionsResponseTopic:
    problem: KafkaError = UnknownTopicOrPartition()
    try:
        validate_name(name)
    except KafkaError as error:
        problem = error
    topic = _error(name, problem)
    # Kafka returns the authorized operations even for a missing topic.
    topic.topic_authorized_operations = TOPIC_OPERATIONS
    return topic


def _error(name: str, error: KafkaError) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=error.code, name=name, is_internal=name in INTERNAL_TOPICS
    )


def refuse_describe_topic_partitions(
    request: DescribeTopicPartitionsRequest, context: RequestContext, error: KafkaError
) -> DescribeTopicPartitionsResponse:
    """Reject all requested topics with `error`, or the cursor's topic if none is requested."""
    names = dict.fromkeys(map(_NAME, request.topics))
    if not names and request.cursor is not None:
        names = {request.cursor.topic_name: None}
    return DescribeTopicPartitionsResponse(
        topics=lazy_array(list(names), lambda name: _error(name, error))
    )
