"""InitProducerId (key 22): an id under which a producer's batches are counted, for idempotence.

Versions served 0-5 (6 is unstable in Kafka 4.3). Without a transactional id: a fresh id with epoch
0, also where the client names its old one (KIP-360). With one, until there are transactions:
TRANSACTIONAL_ID_AUTHORIZATION_FAILED, at which clients stop; see find_coordinator.py.
"""

from __future__ import annotations

from plog.errors import InvalidRequest, KafkaError, TransactionalIdAuthorizationFailed
from plog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from plogd.apis.find_coordinator import NO_TRANSACTIONS
from plogd.apis.request_context import RequestContext
from plogd.broker import Broker
from plogd.ports import Later, MaybeLater


def handle_init_producer_id(
    request: InitProducerIdRequest, context: RequestContext, broker: Broker
) -> MaybeLater[InitProducerIdResponse]:
    """Give an id away."""
    if request.transactional_id == "":
        raise InvalidRequest("a transactional id cannot be empty")
    if request.transactional_id is not None:
        raise TransactionalIdAuthorizationFailed(NO_TRANSACTIONS)
    if (request.producer_id >= 0) != (request.producer_epoch >= 0):
        raise InvalidRequest("a producer id and its epoch come together")
    producer_id = broker.producer_ids.next_id()
    if isinstance(producer_id, Later):
        return producer_id.map(_response)
    return _response(producer_id)


def _response(producer_id: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def refuse_init_producer_id(
    request: InitProducerIdRequest, context: RequestContext, error: KafkaError
) -> InitProducerIdResponse:
    """The answer that there is no id."""
    return InitProducerIdResponse(error_code=error.code, producer_id=-1, producer_epoch=-1)
