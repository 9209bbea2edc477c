"""Metadata (key 3): the brokers, and the topics with their leaders.

Versions served 0-13. In version 0 no topics means all topics, from version 1 on null does.

   4 whether to create topics       5 offline replicas        8 authorized operations (KIP-430)
  10 topic ids, in answers         12 topic ids, in requests (KIP-516)

A topic that does not exist is created if the request and ``auto.create.topics.enable`` allow it.
The answer waits for that, so that it can name the leaders; Kafka answers UNKNOWN_TOPIC_OR_PARTITION
at once and has the client ask again. If creation takes too long we answer LEADER_NOT_AVAILABLE.
`__consumer_offsets` is made by its coordinator, which knows what it has to look like; the other
internal topics are not created this way.

The broker's own address is the one the client itself has used, unless ``advertised.listeners`` has
one for the listener it came by.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from plog.errors import (
    CoordinatorNotAvailable,
    InvalidRequest,
    KafkaError,
    LeaderNotAvailable,
    TopicAlreadyExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from plog.types import ZERO_UUID
from plog.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from plogd.apis.context import RequestContext
from plogd.apis.in_slices import ask_in_slices
from plogd.controller.topics import CLUSTER_METADATA_TOPIC, NewTopic, validate_name
from plogd.controller.waiting import within
from plogd.coordinator.group_coordinator import OFFSETS_TOPIC
from plogd.metadata.cache import INTERNAL_TOPICS, PartitionState, TopicState
from plogd.ports import Later, MaybeLater, spawn

if TYPE_CHECKING:
    from plogd.broker import Broker

_FIRST_VERSION_NULL_IS_ALL = 1
_FIRST_VERSION_WITH_OPERATIONS = 8
_FIRST_VERSION_BY_ID = 12
_CREATION_TIMEOUT_MS = 5_000

TOPIC_OPERATIONS: Final = 0b1101_1111_1000
"""READ WRITE CREATE DELETE ALTER DESCRIBE, DESCRIBE_CONFIGS ALTER_CONFIGS: one bit each."""
CLUSTER_OPERATIONS: Final = 0b1_1111_1010_0000
"""CREATE ALTER DESCRIBE CLUSTER_ACTION DESCRIBE_CONFIGS ALTER_CONFIGS IDEMPOTENT_WRITE."""


def handle_metadata(
    request: MetadataRequest, context: RequestContext, broker: Broker
) -> MaybeLater[MetadataResponse]:
    """Answer from the cache; create what is missing first, if that is wanted."""
    _check_request(request, context)
    if _wants_all(request, context):
        topics = [_topic(state, request, context, broker) for state in broker.cache.topics()]
        return _response(topics, request, context, broker)
    asked = _without_repeats(request.topics or ())
    creatable = _creatable(asked, request, broker)
    if not creatable:
        return _respond(asked, {}, request, context, broker)
    return spawn(_create_and_respond(asked, creatable, request, context, broker))


def _check_request(request: MetadataRequest, context: RequestContext) -> None:
    if context.version >= _FIRST_VERSION_BY_ID:
        return
    for topic in request.topics or ():
        if topic.name is None or topic.topic_id != ZERO_UUID:
            raise InvalidRequest(
                f"topics are asked for by name in version {context.version}, not by id"
            )


def _wants_all(request: MetadataRequest, context: RequestContext) -> bool:
    if context.version < _FIRST_VERSION_NULL_IS_ALL:
        return not request.topics
    return request.topics is None


def _without_repeats(topics: Sequence[MetadataRequestTopic]) -> list[MetadataRequestTopic]:
    return list({(topic.topic_id, topic.name): topic for topic in topics}.values())


# -- creating what is missing ------------------------------------------------------------------


def _creatable(
    asked: Sequence[MetadataRequestTopic], request: MetadataRequest, broker: Broker
) -> list[str]:
    """The names that are to be created."""
    if not (request.allow_auto_topic_creation and broker.config.auto_create_topics_enable):
        return []
    reserved = {*INTERNAL_TOPICS, CLUSTER_METADATA_TOPIC} - {OFFSETS_TOPIC}
    return [
        topic.name
        for topic in asked
        if topic.topic_id == ZERO_UUID
        and topic.name is not None
        and topic.name not in reserved
        and broker.cache.topic(topic.name) is None
    ]


async def _create_and_respond(
    asked: Sequence[MetadataRequestTopic],
    names: Sequence[str],
    request: MetadataRequest,
    context: RequestContext,
    broker: Broker,
) -> MetadataResponse:
    """Create all together, each with its own error."""
    outcomes = await ask_in_slices(names, lambda name: _create(name, broker), broker)
    errors: dict[str, KafkaError] = {}
    for name, outcome in zip(names, outcomes, strict=True):
        match outcome:
            case TopicAlreadyExists():
                pass  # Somebody else was faster.
            case CoordinatorNotAvailable():
                errors[name] = LeaderNotAvailable(outcome.message)
            case KafkaError():
                errors[name] = outcome
    return _respond(asked, errors, request, context, broker)


def _create(name: str, broker: Broker) -> Later[Any]:
    if name == OFFSETS_TOPIC:
        return broker.group_coordinator.ensure_topic()
    return within(
        broker.controller.create_topic(NewTopic(name=name)),
        _CREATION_TIMEOUT_MS,
        broker.timers,
        lambda: LeaderNotAvailable(f"topic '{name}' is being created"),
    )


# -- the answer --------------------------------------------------------------------------------


def _respond(
    asked: Sequence[MetadataRequestTopic],
    errors: dict[str, KafkaError],
    request: MetadataRequest,
    context: RequestContext,
    broker: Broker,
) -> MetadataResponse:
    topics = [_asked_topic(topic, errors, request, context, broker) for topic in asked]
    return _response(topics, request, context, broker)


def _asked_topic(
    asked: MetadataRequestTopic,
    errors: dict[str, KafkaError],
    request: MetadataRequest,
    context: RequestContext,
    broker: Broker,
) -> MetadataResponseTopic:
    if asked.topic_id != ZERO_UUID:
        name = broker.cache.topic_name(asked.topic_id)
        state = None if name is None else broker.cache.topic(name)
        if state is None:
            code = UnknownTopicId.code
            return MetadataResponseTopic(error_code=code, name=None, topic_id=asked.topic_id)
        return _topic(state, request, context, broker)
    name = asked.name or ""
    state = broker.cache.topic(name)
    if state is not None:
        return _topic(state, request, context, broker)
    error = errors.get(name) or _why_unknown(name)
    return MetadataResponseTopic(
        error_code=error.code, name=name, is_internal=name in INTERNAL_TOPICS
    )


def _why_unknown(name: str) -> KafkaError:
    try:
        validate_name(name)
    except KafkaError as error:
        return error
    return UnknownTopicOrPartition()


def _topic(
    state: TopicState, request: MetadataRequest, context: RequestContext, broker: Broker
) -> MetadataResponseTopic:
    topic = MetadataResponseTopic(
        name=state.name,
        topic_id=state.topic_id,
        is_internal=state.is_internal,
        partitions=[
            _partition(
                partition, broker.replica_manager.is_offline(state.name, partition.partition)
            )
            for partition in state.partitions
        ],
    )
    if (
        request.include_topic_authorized_operations
        and context.version >= _FIRST_VERSION_WITH_OPERATIONS
    ):
        topic.topic_authorized_operations = TOPIC_OPERATIONS
    return topic


def _partition(state: PartitionState, is_offline: bool) -> MetadataResponsePartition:
    """A partition of a failed log directory has nobody to lead it."""
    return MetadataResponsePartition(
        error_code=LeaderNotAvailable.code if is_offline else 0,
        partition_index=state.partition,
        leader_id=-1 if is_offline else state.leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        offline_replicas=list(state.replicas) if is_offline else [],
    )


def _response(
    topics: list[MetadataResponseTopic],
    request: MetadataRequest,
    context: RequestContext,
    broker: Broker,
) -> MetadataResponse:
    host, port = broker.address_for(context.connection)
    broker.on_address_told(context.connection, host, port)
    response = MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=broker.config.node_id, host=host, port=port)],
        cluster_id=broker.cluster_id,
        controller_id=broker.config.node_id,
        topics=topics,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response


def refuse_metadata(
    request: MetadataRequest, context: RequestContext, error: KafkaError
) -> MetadataResponse:
    """The answer in which every topic named gets `error`."""
    return MetadataResponse(
        error_code=error.code,
        topics=[
            MetadataResponseTopic(
                error_code=error.code,
                name=topic.name if context.version >= _FIRST_VERSION_BY_ID else topic.name or "",
                topic_id=topic.topic_id,
            )
            for topic in request.topics or ()
        ],
    )
