"""FindCoordinator (key 10): which broker coordinates a group or a transactional id.

Versions served 0-6. There are no coordinators yet, and a client must hear that in a way that makes
it stop: COORDINATOR_NOT_AVAILABLE would have it ask again for ever.

  group         UNSUPPORTED_VERSION: the Java consumer fails with it, librdkafka passes it on to the
                application once
  transaction   TRANSACTIONAL_ID_AUTHORIZATION_FAILED: the only code at which both the Java producer
                and librdkafka give up; nobody may use a transactional id here
  share         INVALID_REQUEST, as Kafka answers where share groups are not enabled

Source: librdkafka 2.x rdkafka_cgrp.c, rdkafka_txnmgr.c; Kafka 4.0 AbstractCoordinator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from plog.errors import (
    InvalidRequest,
    KafkaError,
    TransactionalIdAuthorizationFailed,
    UnsupportedVersion,
)
from plog.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from plogd.apis.context import RequestContext

if TYPE_CHECKING:
    from plogd.broker import Broker

_FIRST_BATCHED_VERSION = 4

NO_TRANSACTIONS: Final = (
    "this broker does not serve transactions yet, so nobody may use a transactional id"
)
NO_GROUPS: Final = (
    "this broker does not serve consumer groups yet: assign partitions instead of subscribing"
)


def handle_find_coordinator(
    request: FindCoordinatorRequest, context: RequestContext, broker: Broker
) -> FindCoordinatorResponse:
    """Refuse, for good."""
    return refuse_find_coordinator(request, context, _why_there_is_none(request.key_type))


def _why_there_is_none(key_type: int) -> KafkaError:
    match key_type:
        case 0:
            return UnsupportedVersion(NO_GROUPS)
        case 1:
            return TransactionalIdAuthorizationFailed(NO_TRANSACTIONS)
        case _:
            return InvalidRequest(f"there are no coordinators of type {key_type}")


def refuse_find_coordinator(
    request: FindCoordinatorRequest, context: RequestContext, error: KafkaError
) -> FindCoordinatorResponse:
    """The answer in which every key gets `error`."""
    if context.version >= _FIRST_BATCHED_VERSION:
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(
                    key=key,
                    node_id=-1,
                    port=-1,
                    error_code=error.code,
                    error_message=error.message,
                )
                for key in request.coordinator_keys
            ]
        )
    return FindCoordinatorResponse(
        error_code=error.code, error_message=error.message, node_id=-1, port=-1
    )
