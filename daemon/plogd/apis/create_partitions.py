"""CreatePartitions (key 37): add partitions to existing topics, each with its own outcome.

Serves versions 0-3.

  2 flexible      3 responses may have THROTTLING_QUOTA_EXCEEDED

controller/partition_creation.py validates the request. The response is sent when the new partitions
can be used. A topic that takes longer than `timeout_ms` gets REQUEST_TIMED_OUT. The response
contains each requested topic once.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from plog.errors import KafkaError, RequestTimedOut
from plog.wire.lazy_array import lazy_array
from plog.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from plogd.apis.duplicate_names import REPEATED, split_repeated
from plogd.apis.request_context import RequestContext
from plogd.apis.sliced_requests import ask_in_slices, check_changes
from plogd.broker import Broker
from plogd.concurrency import within
from plogd.controller.partition_creation import NewPartitions
from plogd.fair_queue import Slices
from plogd.ports import Later, ready, spawn

_NAME = attrgetter("name")


def handle_create_partitions(
    request: CreatePartitionsRequest, context: RequestContext, broker: Broker
) -> Later[CreatePartitionsResponse]:
    """Add partitions to each topic listed exactly once, or only validate the request."""
    broker.controller.check_active()
    check_changes(request.topics, "topics")
    return spawn(_create_all(request, broker))


async def _create_all(request: CreatePartitionsRequest, broker: Broker) -> CreatePartitionsResponse:
    once, repeated = await split_repeated(request.topics, Slices(broker.fair_queue))

    def ask(topic: CreatePartitionsTopic) -> Later[Any]:
        # A plan only reads the controller's state, so it does not need a timeout.
        if request.validate_only:
            return ready(broker.controller.plan_partitions(_asked(topic)))
        return _create(topic, request.timeout_ms, broker)

    outcomes: list[tuple[str, object]] = [
        *zip((topic.name for topic in once), await ask_in_slices(once, ask, broker), strict=True),
        *((name, REPEATED) for name in repeated),
    ]
    return CreatePartitionsResponse(results=lazy_array(outcomes, lambda one: _result(*one)))


def _result(name: str, outcome: object) -> CreatePartitionsTopicResult:
    if isinstance(outcome, KafkaError):
        return _error(name, outcome)
    return CreatePartitionsTopicResult(name=name)


def _asked(topic: CreatePartitionsTopic) -> NewPartitions:
    assignments = topic.assignments
    return NewPartitions(
        topic=topic.name,
        count=topic.count,
        assignments=None if assignments is None else [one.broker_ids for one in assignments],
    )


def _create(topic: CreatePartitionsTopic, timeout_ms: int, broker: Broker) -> Later[Any]:
    # A timeout ends only the wait: the creation consists of several writes and cannot stop halfway.
    return within(
        broker.controller.create_partitions(_asked(topic)),
        timeout_ms,
        broker.timers,
        lambda: RequestTimedOut("the partitions are still being created"),
    )


def _error(name: str, error: KafkaError) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(
        name=name, error_code=error.code, error_message=error.message
    )


def refuse_create_partitions(
    request: CreatePartitionsRequest, context: RequestContext, error: KafkaError
) -> CreatePartitionsResponse:
    """Reject all topics with `error`."""
    # A repeated topic also appears once in the handler's response.
    names = list(dict.fromkeys(map(_NAME, request.topics)))
    return CreatePartitionsResponse(results=lazy_array(names, lambda name: _error(name, error)))
