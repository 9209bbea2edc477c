"""CreateTopics (key 19): create topics, each with its own outcome.

Serves versions 2-7.

  4 partitions and replication factor may be -1, the broker's default (KIP-464)
  5 flexible; partitions, replicas and settings in the response (KIP-525)      7 topic id

controller/topic_creation.py validates the topics. The response is sent when the topics can be used.
A topic that takes longer than `timeout_ms` gets REQUEST_TIMED_OUT.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from plog.errors import KafkaError, RequestTimedOut
from plog.types import ZERO_UUID
from plog.wire.lazy_array import lazy_array
from plog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from plogd.apis.duplicate_names import REPEATED, split_repeated
from plogd.apis.request_context import RequestContext
from plogd.apis.sliced_requests import ask_in_slices, check_changes
from plogd.broker import Broker
from plogd.concurrency import within
from plogd.config.broker_config import BrokerConfig
from plogd.controller.topic_creation import NewTopic, TopicPlan
from plogd.fair_queue import Slices
from plogd.metadata.cache import TopicState
from plogd.ports import Later, ready, spawn
from plogd.topic_config import describe

_FIRST_VERSION_WITH_DETAILS = 5  # KIP-525.
_NAME = attrgetter("name")
Overrides = tuple[tuple[str, str], ...]
"""A topic's settings as pairs of name and value: hashable, unlike a dict."""


def handle_create_topics(
    request: CreateTopicsRequest, context: RequestContext, broker: Broker
) -> Later[CreateTopicsResponse]:
    """Create each topic listed exactly once, or only validate the request."""
    broker.controller.check_active()
    check_changes(request.topics, "topics")
    return spawn(_create_all(request, context, broker))


async def _create_all(
    request: CreateTopicsRequest, context: RequestContext, broker: Broker
) -> CreateTopicsResponse:
    slices = Slices(broker.fair_queue)
    once, repeated = await split_repeated(request.topics, slices)
    new = [_new_topic(topic) async for topic in slices.over(once)]
    # The limit applies to the request as a whole; if it is exceeded, no topic is created.
    broker.controller.check_total(new)

    def ask(topic: NewTopic) -> Later[Any]:
        if request.validate_only:
            return ready(broker.controller.plan(topic))
        return _create(topic, request.timeout_ms, broker)

    outcomes: list[tuple[str, TopicPlan | TopicState | KafkaError]] = [
        *zip((topic.name for topic in new), await ask_in_slices(new, ask, broker), strict=True),
        *((name, REPEATED) for name in repeated),
    ]

    # Describing a topic's settings is expensive, and most requests use the same settings for all
    # topics.
    @functools.lru_cache(maxsize=1)
    def configs(overrides: Overrides) -> list[CreatableTopicConfigs]:
        return _configs(broker.config, dict(overrides))

    return CreateTopicsResponse(
        topics=lazy_array(outcomes, lambda one: _result(*one, context, configs))
    )


def _new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        name=topic.name,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=[(one.partition_index, one.broker_ids) for one in topic.assignments],
        config={config.name: config.value for config in topic.configs},
    )


def _result(
    name: str,
    outcome: TopicPlan | TopicState | KafkaError,
    context: RequestContext,
    configs: Callable[[Overrides], list[CreatableTopicConfigs]],
) -> CreatableTopicResult:
    if isinstance(outcome, KafkaError):
        return _error(name, outcome)
    if isinstance(outcome, TopicPlan):
        # The topic was only validated, so it has no id.
        result = CreatableTopicResult(name=name, topic_id=ZERO_UUID, error_message=None)
        counts = len(outcome.assignments), outcome.replication_factor
    else:
        result = CreatableTopicResult(name=name, topic_id=outcome.topic_id, error_message=None)
        # As in Kafka, the replication factor is taken from the first partition.
        counts = len(outcome.partitions), len(outcome.partitions[0].replicas)
    # Earlier versions ignore these fields, so their cost is avoided.
    if context.version >= _FIRST_VERSION_WITH_DETAILS:
        result.num_partitions, result.replication_factor = counts
        result.configs = configs(tuple(dict(outcome.config).items()))
    return result


def _create(topic: NewTopic, timeout_ms: int, broker: Broker) -> Later[TopicState]:
    # A timeout ends only the wait: the creation consists of several writes and cannot stop halfway.
    return within(
        broker.controller.create_topic(topic),
        timeout_ms,
        broker.timers,
        lambda: RequestTimedOut("the topic is still being created"),
    )


def _configs(config: BrokerConfig, overrides: dict[str, str]) -> list[CreatableTopicConfigs]:
    """Return all settings of a topic with these `overrides`, sorted by name."""
    return [
        CreatableTopicConfigs(
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=entry.source,
            is_sensitive=entry.sensitive,
        )
        # ReplicationControlManager in Kafka also sorts the settings of a new topic.
        for entry in sorted(describe(config, overrides), key=lambda entry: entry.name)
    ]


def _error(name: str, error: KafkaError) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=error.code, error_message=error.message)


def refuse_create_topics(
    request: CreateTopicsRequest, context: RequestContext, error: KafkaError
) -> CreateTopicsResponse:
    """Reject all topics with `error`."""
    # A repeated topic also appears once in the handler's response.
    names = list(dict.fromkeys(map(_NAME, request.topics)))
    return CreateTopicsResponse(topics=lazy_array(names, lambda name: _error(name, error)))
