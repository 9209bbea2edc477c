"""FindCoordinator (key 10): the broker that coordinates a group or a transactional id.

Serves versions 0-6. Version 0 supports only groups; from version 4, a request can contain several
keys.

  group         this broker; the response waits until `__consumer_offsets` has been created, whereas
                Kafka makes the client retry
  transaction   TRANSACTIONAL_ID_AUTHORIZATION_FAILED, because transactions are not supported yet
  share         INVALID_REQUEST, as in Kafka if share groups are disabled

Source: Kafka 4.3 KafkaApis.getCoordinator; librdkafka 2.x rdkafka_cgrp.c, rdkafka_txnmgr.c.
"""

from __future__ import annotations

from typing import Final

from plog.errors import InvalidRequest, KafkaError, TransactionalIdAuthorizationFailed
from plog.wire.lazy_array import lazy_array
from plog.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from plogd.apis.request_context import RequestContext
from plogd.apis.sliced_requests import ask_in_slices
from plogd.broker import Broker
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
        await broker.group_coordinator.find(request.key)
        host, port = broker.address_for(context.connection)
        return FindCoordinatorResponse(
            error_message="NONE",  # Kafka's text for no error.
            node_id=broker.config.node_id,
            host=host,
            port=port,
        )
    # Each key once, because a small request can repeat a key thousands of times.
    keys = list(dict.fromkeys(request.coordinator_keys))
    found = await ask_in_slices(keys, broker.group_coordinator.find, broker)
    return FindCoordinatorResponse(
        coordinators=lazy_array(
            list(zip(keys, found, strict=True)), lambda one: _coordinator(*one, context, broker)
        )
    )


def _coordinator(
    key: str, found: int | KafkaError, context: RequestContext, broker: Broker
) -> Coordinator:
    if isinstance(found, KafkaError):
        return _none(key, found)
    host, port = broker.address_for(context.connection)
    return Coordinator(key=key, node_id=broker.config.node_id, host=host, port=port)


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
