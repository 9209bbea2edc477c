"""CreateTopics (key 19): new topics, each with its own outcome.

Versions served 2-7.

  4 partitions and replication factor may be -1, the broker's default (KIP-464)
  5 flexible; partitions, replicas and settings in the answer (KIP-525)      7 topic id

What a topic may be is controller/topics.py's knowledge. A topic is answered when it can be used;
one that takes longer than `timeout_ms` is answered REQUEST_TIMED_OUT and created all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from plog.errors import KafkaError, RequestTimedOut
from plog.types import ZERO_UUID
from plog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from plogd.apis.context import RequestContext
from plogd.apis.in_slices import WRITES_AT_ONCE, ask_in_slices, check_changes
from plogd.apis.named_once import REPEATED, split_repeated
from plogd.controller.topics import NewTopic
from plogd.controller.waiting import within
from plogd.metadata.cache import TopicState
from plogd.ports import Later, MaybeLater, ready, spawn
from plogd.topic_config import describe

if TYPE_CHECKING:
    from plogd.broker import Broker

_FIRST_VERSION_WITH_DETAILS = 5


def handle_create_topics(
    request: CreateTopicsRequest, context: RequestContext, broker: Broker
) -> MaybeLater[CreateTopicsResponse]:
    """Create, or only check, every topic that is named once."""
    check_changes(request.topics, "topics")
    once, repeated_names = split_repeated(request.topics)
    repeated = [_error(name, REPEATED) for name in repeated_names]
    broker.controller.check_total([_new_topic(topic) for topic in once])
    if request.validate_only:
        return spawn(_validate_all(once, repeated, context, broker))
    return spawn(_create_all(once, request.timeout_ms, repeated, context, broker))


def _new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        name=topic.name,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=[(one.partition_index, one.broker_ids) for one in topic.assignments],
        config={config.name: config.value for config in topic.configs},
    )


async def _validate_all(
    topics: list[CreatableTopic],
    repeated: list[CreatableTopicResult],
    context: RequestContext,
    broker: Broker,
) -> CreateTopicsResponse:
    outcomes = await ask_in_slices(
        topics, lambda topic: ready(_validate(topic, context, broker)), broker
    )
    return CreateTopicsResponse(topics=_results(topics, outcomes) + repeated)


def _results(
    topics: Sequence[CreatableTopic], outcomes: Sequence[CreatableTopicResult | KafkaError]
) -> list[CreatableTopicResult]:
    return [
        _error(topic.name, outcome) if isinstance(outcome, KafkaError) else outcome
        for topic, outcome in zip(topics, outcomes, strict=True)
    ]


def _validate(
    topic: CreatableTopic, context: RequestContext, broker: Broker
) -> CreatableTopicResult:
    plan = broker.controller.plan(_new_topic(topic))
    result = CreatableTopicResult(name=plan.name, topic_id=ZERO_UUID, error_message=None)
    _add_details(
        result,
        len(plan.assignments),
        plan.replication_factor,
        dict(plan.config),
        context,
        broker,
    )
    return result


def _create(topic: CreatableTopic, timeout_ms: int, broker: Broker) -> Later[TopicState]:
    return within(
        broker.controller.create_topic(_new_topic(topic)),
        timeout_ms,
        broker.timers,
        lambda: RequestTimedOut("the topic is still being created"),
    )


async def _create_all(
    topics: list[CreatableTopic],
    timeout_ms: int,
    repeated: list[CreatableTopicResult],
    context: RequestContext,
    broker: Broker,
) -> CreateTopicsResponse:
    def create(topic: CreatableTopic) -> Later[CreatableTopicResult]:
        creation = _create(topic, timeout_ms, broker)
        return creation.map(lambda state: _created(state, context, broker))

    outcomes = await ask_in_slices(topics, create, broker, WRITES_AT_ONCE)
    return CreateTopicsResponse(topics=_results(topics, outcomes) + repeated)


def _created(topic: TopicState, context: RequestContext, broker: Broker) -> CreatableTopicResult:
    result = CreatableTopicResult(name=topic.name, topic_id=topic.topic_id, error_message=None)
    _add_details(
        result,
        len(topic.partitions),
        len(topic.partitions[0].replicas),
        dict(topic.config),
        context,
        broker,
    )
    return result


def _add_details(
    result: CreatableTopicResult,
    partition_count: int,
    replication_factor: int,
    overrides: dict[str, str],
    context: RequestContext,
    broker: Broker,
) -> None:
    """What version 5 and up tell of the new topic."""
    if context.version < _FIRST_VERSION_WITH_DETAILS:
        return
    result.num_partitions = partition_count
    result.replication_factor = replication_factor
    entries = describe(broker.config, overrides)
    result.configs = [
        CreatableTopicConfigs(
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=entry.source,
            is_sensitive=entry.sensitive,
        )
        for entry in sorted(entries, key=lambda entry: entry.name)
    ]


def _error(name: str, error: KafkaError) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=error.code, error_message=error.message)


def refuse_create_topics(
    request: CreateTopicsRequest, context: RequestContext, error: KafkaError
) -> CreateTopicsResponse:
    """The answer in which every topic gets `error`."""
    names = dict.fromkeys(topic.name for topic in request.topics)
    return CreateTopicsResponse(topics=[_error(name, error) for name in names])
