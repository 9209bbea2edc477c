"""Metadata (key 3): the brokers, and the topics with their leaders.

Serves versions 0-13. An empty list means all topics in version 0; from version 1, null does.

   4 whether to create topics       5 offline replicas        8 authorized operations (KIP-430)
  10 topic ids in responses        12 topic ids in requests (KIP-516)

Version 0 lists only live replicas; if others exist, the partition gets REPLICA_NOT_AVAILABLE.

A missing topic is created if the request and ``auto.create.topics.enable`` allow it. The response
waits for the creation, so that it can contain the leaders; Kafka responds immediately with
UNKNOWN_TOPIC_OR_PARTITION, and the client retries. A topic gets LEADER_NOT_AVAILABLE if its
creation takes too long or would exceed ``plog.auto.create.topics.max.per.second``.

The response lists the live brokers that have the listener on which the request arrived, with their
endpoints for this listener (listener_view.py). This broker's own address is the one to which the
client connected, unless ``advertised.listeners`` has an address for that listener. If the leader of
a partition does not have the listener, the partition gets LISTENER_NOT_FOUND, or
LEADER_NOT_AVAILABLE before version 6. A response with all topics is encoded once for all clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from plog.errors import (
    CoordinatorNotAvailable,
    ErrorCode,
    InvalidRequest,
    KafkaError,
    LeaderNotAvailable,
    TopicAlreadyExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from plog.types import ZERO_UUID, Uuid
from plog.wire.lazy_array import lazy_array
from plog.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from plogd.apis.encoded_response import SharedResponse
from plogd.apis.listener_view import ListenerView
from plogd.apis.request_context import RequestContext
from plogd.apis.sliced_requests import ask_in_slices
from plogd.broker import Broker
from plogd.controller.topic_creation import CLUSTER_METADATA_TOPIC, validate_name
from plogd.coordinator.group.group_coordinator import OFFSETS_TOPIC
from plogd.fair_queue import SLICE, Slices
from plogd.metadata.cache import INTERNAL_TOPICS, PartitionState, TopicState
from plogd.ports import Later, MaybeLater, spawn

_FIRST_VERSION_NULL_IS_ALL = 1  # KIP-4.
_FIRST_VERSION_WITH_LISTENER_ERROR = 6  # Kafka's KafkaApis.handleTopicMetadataRequest.
_FIRST_VERSION_WITH_OPERATIONS = 8  # KIP-430.
_FIRST_VERSION_BY_ID = 12  # KIP-516.
_FEW_TOPICS = 32
"""Maximum number of topics for which a response with all topics is encoded for each client."""
_RESERVED = {*INTERNAL_TOPICS, CLUSTER_METADATA_TOPIC} - {OFFSETS_TOPIC}
"""Topics that a Metadata request never creates."""

_Asked = dict[tuple[Uuid, str | None], MetadataRequestTopic]
"""A request's distinct topics, by id and name."""

TOPIC_OPERATIONS: Final = 0b1101_1111_1000
"""READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS and ALTER_CONFIGS. The number of
each `AclOperation` is the position of its bit. All are set, because ACLs are not enforced."""
CLUSTER_OPERATIONS: Final = 0b1_1111_1010_0000
"""CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS and IDEMPOTENT_WRITE,
encoded in the same way."""


def handle_metadata(
    request: MetadataRequest, context: RequestContext, broker: Broker
) -> MaybeLater[MetadataResponse] | SharedResponse:
    """Respond from the metadata cache, after creating missing topics if this is allowed."""
    if _wants_all(request, context):
        if broker.cache.topic_count > _FEW_TOPICS:
            return _share_all(request, context, broker)
        return _all_topics(request, context, broker)
    topics = request.topics or ()
    if len(topics) > SLICE:
        # Separate from the short path below, which answers most requests without creating a
        # coroutine.
        return spawn(_many_topics(topics, request, context, broker))
    # A dict, so that a repeated topic is created and described only once.
    asked: _Asked = {}
    for topic in topics:
        _check_topic(topic, context)
        asked[topic.topic_id, topic.name] = topic
    creatable = [
        topic.name or "" for topic in asked.values() if _is_creatable(topic, request, broker)
    ]
    if not creatable:
        return _respond(asked, {}, request, context, broker)
    return spawn(_create_and_respond(asked, creatable, request, context, broker))


def _wants_all(request: MetadataRequest, context: RequestContext) -> bool:
    if context.version < _FIRST_VERSION_NULL_IS_ALL:
        return not request.topics
    return request.topics is None


def _check_topic(topic: MetadataRequestTopic, context: RequestContext) -> None:
    if context.version < _FIRST_VERSION_BY_ID and (
        topic.name is None or topic.topic_id != ZERO_UUID
    ):
        raise InvalidRequest(
            f"Metadata version {context.version} does not support topic ids; request topics by name"
        )


async def _many_topics(
    topics: Sequence[MetadataRequestTopic],
    request: MetadataRequest,
    context: RequestContext,
    broker: Broker,
) -> MetadataResponse:
    """Handle a request for more topics than a slice contains."""
    slices = Slices(broker.fair_queue)
    asked: _Asked = {}
    async for topic in slices.over(topics):
        _check_topic(topic, context)
        asked[topic.topic_id, topic.name] = topic
    creatable = [
        topic.name or ""
        async for topic in slices.over(asked.values())
        if _is_creatable(topic, request, broker)
    ]
    return await _create_and_respond(asked, creatable, request, context, broker)


# -- all topics --------------------------------------------------------------------------------


def _all_topics(
    request: MetadataRequest, context: RequestContext, broker: Broker
) -> MetadataResponse:
    # A copy: the response is encoded in slices, between which topics can be created.
    states = list(broker.cache.topics())
    view = ListenerView(context.connection, broker)
    topics = lazy_array(states, lambda state: _topic(state, request, context, view))
    return _response(topics, request, context, broker, view)


def _share_all(request: MetadataRequest, context: RequestContext, broker: Broker) -> SharedResponse:
    """Return all topics, encoded once for all clients with identical requests."""
    address = broker.address_for(context.connection)
    # Reported for each client: `make` runs for only one of the clients that share the response.
    broker.on_address_advertised(context.connection, *address)
    return SharedResponse(
        key=(
            request.api_key,
            context.version,
            context.connection.listener_name,
            address,
            request.include_topic_authorized_operations,
            request.include_cluster_authorized_operations,
        ),
        # A failed directory changes the leaders in responses, but not the version of the cache.
        state=(broker.cache.version, len(broker.log_manager.offline_dirs)),
        make=lambda: _all_topics(request, context, broker),
    )


# -- creation of missing topics ----------------------------------------------------------------


def _is_creatable(topic: MetadataRequestTopic, request: MetadataRequest, broker: Broker) -> bool:
    """Return whether the topic is missing and may be created."""
    return (
        request.allow_auto_topic_creation
        and broker.config.auto_create_topics_enable
        and topic.topic_id == ZERO_UUID
        and topic.name is not None
        and topic.name not in _RESERVED
        and broker.cache.topic(topic.name) is None
        and isinstance(_why_unknown(topic.name), UnknownTopicOrPartition)
    )


async def _create_and_respond(
    asked: _Asked,
    names: Sequence[str],
    request: MetadataRequest,
    context: RequestContext,
    broker: Broker,
) -> MetadataResponse:
    """Create topics, each with its own outcome, then build the response."""
    at_once = broker.auto_topic_creation.max_per_request
    postponed = LeaderNotAvailable(f"a request can create at most {at_once} topics; retry")
    errors: dict[str, KafkaError] = dict.fromkeys(names[at_once:], postponed)
    names = names[:at_once]
    outcomes = await ask_in_slices(names, lambda name: _create(name, broker), broker)
    async for name, outcome in Slices(broker.fair_queue).over(zip(names, outcomes, strict=True)):
        match outcome:
            case TopicAlreadyExists():
                pass  # Another request has created it.
            case CoordinatorNotAvailable():
                # Clients retry a Metadata request after LEADER_NOT_AVAILABLE; the coordinator's
                # error is meant for group requests.
                errors[name] = LeaderNotAvailable(outcome.message)
            case KafkaError():
                errors[name] = outcome
    return _respond(asked, errors, request, context, broker)


def _create(name: str, broker: Broker) -> Later[Any]:
    # Group requests also create `__consumer_offsets`, with its own partition count and settings.
    if name == OFFSETS_TOPIC:
        return broker.group_coordinator.ensure_topic()
    return broker.auto_topic_creation.create(name)


# -- the response ------------------------------------------------------------------------------


def _respond(
    asked: _Asked,
    errors: dict[str, KafkaError],
    request: MetadataRequest,
    context: RequestContext,
    broker: Broker,
) -> MetadataResponse:
    view = ListenerView(context.connection, broker)
    topics = lazy_array(
        list(asked.values()),
        lambda topic: _asked_topic(topic, errors, request, context, broker, view),
    )
    return _response(topics, request, context, broker, view)


def _asked_topic(
    asked: MetadataRequestTopic,
    errors: dict[str, KafkaError],
    request: MetadataRequest,
    context: RequestContext,
    broker: Broker,
    view: ListenerView,
) -> MetadataResponseTopic:
    if asked.topic_id != ZERO_UUID:
        name = broker.cache.topic_name(asked.topic_id)
        state = None if name is None else broker.cache.topic(name)
        if state is None:
            code = UnknownTopicId.code
            # Only version 12 and later can request by id, and in these versions, the name may be
            # null.
            return MetadataResponseTopic(error_code=code, name=None, topic_id=asked.topic_id)
        return _topic(state, request, context, view)
    name = asked.name or ""
    state = broker.cache.topic(name)
    if state is not None:
        return _topic(state, request, context, view)
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
    state: TopicState, request: MetadataRequest, context: RequestContext, view: ListenerView
) -> MetadataResponseTopic:
    name, version = state.name, context.version
    # Creating elements during the encoding saves memory, but costs CPU time in small responses.
    if len(state.partitions) > SLICE:
        partitions = lazy_array(state.partitions, lambda x: _partition(name, x, version, view))
    else:
        partitions = [_partition(name, x, version, view) for x in state.partitions]
    topic = MetadataResponseTopic(
        name=state.name,
        topic_id=state.topic_id,
        is_internal=state.is_internal,
        partitions=partitions,
    )
    # The field is not ignorable: earlier versions cannot encode a value other than the default.
    if (
        request.include_topic_authorized_operations
        and context.version >= _FIRST_VERSION_WITH_OPERATIONS
    ):
        topic.topic_authorized_operations = TOPIC_OPERATIONS
    return topic


def _partition(
    topic: str, state: PartitionState, version: int, view: ListenerView
) -> MetadataResponsePartition:
    """Describe a partition as the clients of the listener see it."""
    # As in Kafka, a partition without a leader is listed with an error, and clients refresh their
    # metadata until it has one.
    leader, error_code, offline_replicas = view.partition(topic, state)
    replicas, isr = list(state.replicas), list(state.isr)
    if version < _FIRST_VERSION_WITH_LISTENER_ERROR and error_code:
        error_code = ErrorCode.LEADER_NOT_AVAILABLE
    # Clients of version 0 expect every replica in the list of brokers.
    if not version and not view.reachable.issuperset(state.replicas):
        replicas = [replica for replica in replicas if replica in view.reachable]
        isr = [replica for replica in isr if replica in view.reachable]
        error_code = error_code or ErrorCode.REPLICA_NOT_AVAILABLE
    return MetadataResponsePartition(
        error_code=error_code,
        partition_index=state.partition,
        leader_id=leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
        offline_replicas=offline_replicas,
    )


def _response(
    topics: list[MetadataResponseTopic],
    request: MetadataRequest,
    context: RequestContext,
    broker: Broker,
    view: ListenerView,
) -> MetadataResponse:
    broker.on_address_advertised(context.connection, *broker.address_for(context.connection))
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=broker_id, host=host, port=port, rack=rack)
            for broker_id, host, port, rack in view.nodes()
        ],
        cluster_id=broker.cluster_id,
        # Clients send requests that create or change topics to the controller.
        controller_id=broker.cache.controller_id,
        topics=topics,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response


def refuse_metadata(
    request: MetadataRequest, context: RequestContext, error: KafkaError
) -> MetadataResponse:
    """Reject all requested topics with `error`."""

    def refused(topic: MetadataRequestTopic) -> MetadataResponseTopic:
        return MetadataResponseTopic(
            error_code=error.code,
            # Earlier versions cannot encode null.
            name=topic.name if context.version >= _FIRST_VERSION_BY_ID else topic.name or "",
            topic_id=topic.topic_id,
        )

    return MetadataResponse(error_code=error.code, topics=lazy_array(request.topics or (), refused))
