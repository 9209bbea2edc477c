"""DeleteTopics (key 20): delete topics by name or, from version 6, by id.

Serves versions 1-6.

  3 responses may have TOPIC_DELETION_DISABLED    4 flexible
  5 error messages                                6 topic ids (KIP-516)

The response is sent when clients can no longer access the topics and their directories have been
renamed; the files are removed ``file.delete.delay.ms`` later. Each topic has its own outcome. A
topic that is listed more than once is not deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from plog.errors import (
    InvalidRequest,
    KafkaError,
    RequestTimedOut,
    TopicDeletionDisabled,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from plog.types import ZERO_UUID, Uuid
from plog.wire.lazy_array import lazy_array
from plog.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from plogd.apis.request_context import RequestContext
from plogd.apis.sliced_requests import ask_in_slices, check_changes
from plogd.broker import Broker
from plogd.concurrency import within
from plogd.fair_queue import Slices
from plogd.metadata.cache import TopicState
from plogd.ports import Later, spawn

_FIRST_VERSION_WITH_DISABLED = 3  # KIP-322.


@dataclass(frozen=True, slots=True, kw_only=True)
class _RequestedTopic:
    """A requested topic, identified by either name or id; having both or neither is an error."""

    name: str | None
    topic_id: Uuid


def handle_delete_topics(
    request: DeleteTopicsRequest, context: RequestContext, broker: Broker
) -> Later[DeleteTopicsResponse]:
    """Delete each existing topic that is listed exactly once."""
    # Before the topics are looked up: the cache of another broker may not have them yet.
    broker.controller.check_active()
    if not broker.config.delete_topic_enable:
        if context.version < _FIRST_VERSION_WITH_DISABLED:
            # Older clients do not know TOPIC_DELETION_DISABLED.
            raise InvalidRequest("Topic deletion is disabled.")
        raise TopicDeletionDisabled()
    # Versions before 6 have only `topic_names`; version 6 has only `topics`.
    check_changes(request.topics or request.topic_names, "topics")
    return spawn(_delete_all(request, broker))


async def _delete_all(request: DeleteTopicsRequest, broker: Broker) -> DeleteTopicsResponse:
    slices = Slices(broker.fair_queue)
    counts: dict[_RequestedTopic, int] = {}
    async for asked in slices.over(_requested_topics(request)):
        counts[asked] = counts.get(asked, 0) + 1
    results: list[DeletableTopicResult] = []
    # By id, because a request can list a topic both by name and by id.
    found: dict[Uuid, list[TopicState]] = {}
    async for asked, count in slices.over(counts.items()):
        try:
            topic = _find(asked, count, broker)
        except KafkaError as error:
            results.append(_result(asked.name, asked.topic_id, error))
        else:
            found.setdefault(topic.topic_id, []).append(topic)
    doomed: list[TopicState] = []
    async for topics in slices.over(found.values()):
        if len(topics) == 1:
            doomed += topics
        else:
            twice = InvalidRequest("The topic was listed both by name and by id.")
            results += [_result(topic.name, topic.topic_id, twice) for topic in topics]
    outcomes = await ask_in_slices(
        doomed, lambda topic: _delete(topic, request.timeout_ms, broker), broker
    )
    async for topic, outcome in slices.over(zip(doomed, outcomes, strict=True)):
        if outcome is not None:
            results.append(_result(topic.name, topic.topic_id, outcome))
        else:
            results.append(DeletableTopicResult(name=topic.name, topic_id=topic.topic_id))
    return DeleteTopicsResponse(responses=results)


def _requested_topics(request: DeleteTopicsRequest) -> Iterator[_RequestedTopic]:
    for name in request.topic_names:
        yield _RequestedTopic(name=name, topic_id=ZERO_UUID)
    for topic in request.topics:
        yield _RequestedTopic(name=topic.name, topic_id=topic.topic_id)


def _find(asked: _RequestedTopic, count: int, broker: Broker) -> TopicState:
    # The error messages are those of Kafka's ControllerApis.deleteTopics.
    by_id = asked.topic_id != ZERO_UUID
    if asked.name is None and not by_id:
        raise InvalidRequest("Neither topic name nor id were specified.")
    if asked.name is not None and by_id:
        raise InvalidRequest("You may not specify both topic name and topic id.")
    if count > 1:
        raise InvalidRequest("Duplicate topic id." if by_id else "Duplicate topic name.")
    name = broker.cache.topic_name(asked.topic_id) if by_id else asked.name
    topic = None if name is None else broker.cache.topic(name)
    if topic is None:
        raise UnknownTopicId() if by_id else UnknownTopicOrPartition()
    return topic


def _delete(topic: TopicState, timeout_ms: int, broker: Broker) -> Later[None]:
    # A timeout ends only the wait: a deletion that has begun cannot stop halfway.
    return within(
        # The id prevents the deletion of a topic that was recreated between two slices.
        broker.controller.delete_topic(topic.name, topic.topic_id),
        timeout_ms,
        broker.timers,
        lambda: RequestTimedOut("the topic is still being deleted"),
    )


def _result(name: str | None, topic_id: Uuid, error: KafkaError) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=name, topic_id=topic_id, error_code=error.code, error_message=error.message
    )


def refuse_delete_topics(
    request: DeleteTopicsRequest, context: RequestContext, error: KafkaError
) -> DeleteTopicsResponse:
    """Reject all topics with `error`; list a repeated name only once."""

    def refused(asked: str | DeleteTopicState) -> DeletableTopicResult:
        if isinstance(asked, str):
            return _result(asked, ZERO_UUID, error)
        return _result(asked.name, asked.topic_id, error)

    asked: list[str | DeleteTopicState] = [*dict.fromkeys(request.topic_names), *request.topics]
    return DeleteTopicsResponse(responses=lazy_array(asked, refused))
