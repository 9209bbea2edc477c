"""CreatePartitions (key 37): more partitions for topics that exist, each with its own outcome.

Versions served 0-3.

  2 flexible      3 THROTTLING_QUOTA_EXCEEDED may be answered

What may be asked for is controller/partitions.py's knowledge. A topic is answered when its new
partitions can be used; one that takes longer than `timeout_ms` is answered REQUEST_TIMED_OUT and
gets them all the same. Every topic named is in the answer, once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plog.errors import KafkaError, RequestTimedOut
from plog.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from plogd.apis.context import RequestContext
from plogd.apis.in_slices import WRITES_AT_ONCE, ask_in_slices, check_changes
from plogd.apis.named_once import REPEATED, split_repeated
from plogd.controller.partitions import MorePartitions
from plogd.controller.waiting import within
from plogd.metadata.cache import TopicState
from plogd.ports import Later, MaybeLater, spawn

if TYPE_CHECKING:
    from plogd.broker import Broker


def handle_create_partitions(
    request: CreatePartitionsRequest, context: RequestContext, broker: Broker
) -> MaybeLater[CreatePartitionsResponse]:
    """Give more partitions to, or only check, every topic that is named once."""
    check_changes(request.topics, "topics")
    once, repeated_names = split_repeated(request.topics)
    repeated = [_error(name, REPEATED) for name in repeated_names]
    if request.validate_only:
        results = [_validate(topic, broker) for topic in once]
        return CreatePartitionsResponse(results=results + repeated)
    return spawn(_create_all(once, request.timeout_ms, repeated, broker))


def _asked(topic: CreatePartitionsTopic) -> MorePartitions:
    assignments = topic.assignments
    return MorePartitions(
        topic=topic.name,
        count=topic.count,
        assignments=None if assignments is None else [one.broker_ids for one in assignments],
    )


def _validate(topic: CreatePartitionsTopic, broker: Broker) -> CreatePartitionsTopicResult:
    try:
        broker.controller.plan_partitions(_asked(topic))
    except KafkaError as error:
        return _error(topic.name, error)
    return CreatePartitionsTopicResult(name=topic.name)


def _create(topic: CreatePartitionsTopic, timeout_ms: int, broker: Broker) -> Later[TopicState]:
    return within(
        broker.controller.create_partitions(_asked(topic)),
        timeout_ms,
        broker.timers,
        lambda: RequestTimedOut("the partitions are still being created"),
    )


async def _create_all(
    topics: list[CreatePartitionsTopic],
    timeout_ms: int,
    repeated: list[CreatePartitionsTopicResult],
    broker: Broker,
) -> CreatePartitionsResponse:
    outcomes = await ask_in_slices(
        topics, lambda topic: _create(topic, timeout_ms, broker), broker, WRITES_AT_ONCE
    )
    results = [
        _error(topic.name, outcome)
        if isinstance(outcome, KafkaError)
        else CreatePartitionsTopicResult(name=topic.name)
        for topic, outcome in zip(topics, outcomes, strict=True)
    ]
    return CreatePartitionsResponse(results=results + repeated)


def _error(name: str, error: KafkaError) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(
        name=name, error_code=error.code, error_message=error.message
    )


def refuse_create_partitions(
    request: CreatePartitionsRequest, context: RequestContext, error: KafkaError
) -> CreatePartitionsResponse:
    """The answer in which every topic gets `error`."""
    names = dict.fromkeys(topic.name for topic in request.topics)
    return CreatePartitionsResponse(results=[_error(name, error) for name in names])
