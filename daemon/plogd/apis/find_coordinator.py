"""FindCoordinator (key 10): the broker that coordinates a group or a transactional id.

Serves versions 0-6. Version 0 supports only groups; from version 4, a request can contain several
keys.

  group         the leader of the group's partition of `__consumer_offsets`; the response waits
                until this topic has been created, whereas Kafka makes the client retry
  transaction   TRANSACTIONAL_ID_AUTHORIZATION_FAILED, because transactions are not supported yet
  share         INVALID_REQUEST, as in Kafka if share groups are disabled

Source: Kafka 4.3 KafkaApis.getCoordinator; librdkafka 2.x rdkafka_cgrp.c, rdkafka_txnmgr.c.
"""

from __future__ import annotations

from typing import Final

from plog.errors import (
    CoordinatorNotAvailable,
    InvalidRequest,
    KafkaError,
    TransactionalIdAuthorizationFailed,
)
from plog.wire.lazy_array import lazy_array
from plog.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from plogd.apis.listener_view import ListenerView, Node
from plogd.apis.request_context import RequestContext
from plogd.apis.sliced_requests import ask_in_slices
from plogd.broker import Broker
from plogd.coordinator.group.group_coordinator import OFFSETS_TOPIC
from plogd.ports import MaybeLater, spawn

_FIRST_BATCHED_VERSION = 4  # KIP-699.
_GROUP, _TRANSACTION = 0, 1

NO_TRANSACTIONS: Final = (
    "this broker does not support transactions yet; remove transactional.id from the settings"
)


def handle_find_coordinator(
    request: FindCoordinatorRequest, context: RequestContext, broker: Broker
) -> MaybeLater[FindCoordinatorResponse]:
    """Return the coordinator for each key, or the lookup error."""
    if request.key_type != _GROUP:
        return refuse_find_coordinator(request, context, _unsupported_key_type(request.key_type))
    return spawn(_find_groups(request, context, broker))


def _unsupported_key_type(key_type: int) -> KafkaError:
    if key_type == _TRANSACTION:
        # This is the only error after which both the Java producer and librdkafka stop retrying. It
        # is also accurate: no client may use a transactional id here.
        return TransactionalIdAuthorizationFailed(NO_TRANSACTIONS)
    return InvalidRequest(f"unsupported coordinator type {key_type}")


async def _find_groups(
    request: FindCoordinatorRequest, context: RequestContext, broker: Broker
) -> FindCoordinatorResponse:
    if context.version < _FIRST_BATCHED_VERSION:
        number = await broker.group_coordinator.find(request.key)
        node = _leader(number, ListenerView(context.connection, broker), broker)
        if isinstance(node, KafkaError):
            raise node
        return FindCoordinatorResponse(
            error_message="NONE",  # Kafka's text for no error.
            node_id=node.broker_id,
            host=node.host,
            port=node.port,
        )
    # Each key once, because a small request can repeat a key thousands of times.
    keys = list(dict.fromkeys(request.coordinator_keys))
    found = await ask_in_slices(keys, broker.group_coordinator.find, broker)
    view = ListenerView(context.connection, broker)
    return FindCoordinatorResponse(
        coordinators=lazy_array(
            list(zip(keys, found, strict=True)), lambda one: _coordinator(*one, view, broker)
        )
    )


def _coordinator(
    key: str, found: int | KafkaError, view: ListenerView, broker: Broker
) -> Coordinator:
    node = found if isinstance(found, KafkaError) else _leader(found, view, broker)
    if isinstance(node, KafkaError):
        return _none(key, node)
    return Coordinator(key=key, node_id=node.broker_id, host=node.host, port=node.port)


def _leader(number: int, view: ListenerView, broker: Broker) -> Node | KafkaError:
    """Return the leader of a partition of `__consumer_offsets`, or CoordinatorNotAvailable."""
    topic = broker.cache.topic(OFFSETS_TOPIC)
    # The topic can be deleted, and recreated with fewer partitions, before the response is encoded.
    if topic is not None and number < len(topic.partitions):
        leader, _, _ = view.partition(topic.name, topic.partitions[number])
        node = view.node(leader)
        if node is not None:
            return node
    # As in Kafka, also if the leader does not have the client's listener.
    return CoordinatorNotAvailable(f"{OFFSETS_TOPIC}-{number} has no available leader")


def _none(key: str, error: KafkaError) -> Coordinator:
    # The id, port and empty host of Kafka's Node.noNode().
    return Coordinator(
        key=key, node_id=-1, port=-1, error_code=error.code, error_message=error.message
    )


def refuse_find_coordinator(
    request: FindCoordinatorRequest, context: RequestContext, error: KafkaError
) -> FindCoordinatorResponse:
    """Reject all keys with `error`."""
    if context.version >= _FIRST_BATCHED_VERSION:
        return FindCoordinatorResponse(
            coordinators=lazy_array(request.coordinator_keys, lambda key: _none(key, error))
        )
    return FindCoordinatorResponse(
        error_code=error.code, error_message=error.message, node_id=-1, port=-1
    )
