"""FindCoordinator (key 10): which broker coordinates a group or a transactional id.

Versions served 0-6. Version 0 knows groups only, from version 4 on there are many keys at once.

  group         this broker, once `__consumer_offsets` is there; the answer waits for that, where
                Kafka has the client ask again
  transaction   TRANSACTIONAL_ID_AUTHORIZATION_FAILED: there are no transactions yet, and this is
                the only code at which both the Java producer and librdkafka give up instead of
                asking for ever; nobody may use a transactional id here
  share         INVALID_REQUEST, as Kafka answers where share groups are not enabled

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

_FIRST_BATCHED_VERSION = 4
_GROUP, _TRANSACTION = 0, 1

NO_TRANSACTIONS: Final = (
    "this broker does not serve transactions yet, so nobody may use a transactional id"
)


def handle_find_coordinator(
    request: FindCoordinatorRequest, context: RequestContext, broker: Broker
) -> MaybeLater[FindCoordinatorResponse]:
    """Name the coordinator of each key, or say why there is none."""
    if request.key_type != _GROUP:
        return refuse_find_coordinator(request, context, _why_there_is_none(request.key_type))
    return spawn(_find_groups(request, context, broker))


def _why_there_is_none(key_type: int) -> KafkaError:
    if key_type == _TRANSACTION:
        return TransactionalIdAuthorizationFailed(NO_TRANSACTIONS)
    return InvalidRequest(f"there are no coordinators of type {key_type}")


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
    return Coordinator(
        key=key, node_id=-1, port=-1, error_code=error.code, error_message=error.message
    )


def refuse_find_coordinator(
    request: FindCoordinatorRequest, context: RequestContext, error: KafkaError
) -> FindCoordinatorResponse:
    """The answer in which every key gets `error`."""
    if context.version >= _FIRST_BATCHED_VERSION:
        return FindCoordinatorResponse(
            coordinators=lazy_array(request.coordinator_keys, lambda key: _none(key, error))
        )
    return FindCoordinatorResponse(
        error_code=error.code, error_message=error.message, node_id=-1, port=-1
    )
