"""InitProducerId (key 22): producer ids for idempotent producers.

Serves versions 0-5. Without a transactional id, the response contains a new producer id with epoch
0, even if the client sends its old id (KIP-360). With a transactional id, the request fails,
because transactions are not supported yet.
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
    """Return a new producer id."""
    if request.transactional_id == "":
        raise InvalidRequest("the transactional id is empty")
    if request.transactional_id is not None:
        # Clients do not retry after this error; see find_coordinator.py.
        raise TransactionalIdAuthorizationFailed(NO_TRANSACTIONS)
    # As in Kafka's KafkaApis.handleInitProducerIdRequest.
    if (request.producer_id >= 0) != (request.producer_epoch >= 0):
        raise InvalidRequest(
            "only one of producer id and producer epoch is set; set both or neither"
        )
    # Like Kafka's TransactionCoordinator, ignore an old id if there is no transactional id.
    producer_id = broker.producer_ids.next_id()
    # Only one request in a thousand waits: the one for which a new block of ids must be stored.
    if isinstance(producer_id, Later):
        return producer_id.map(_response)
    return _response(producer_id)


def _response(producer_id: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def refuse_init_producer_id(
    request: InitProducerIdRequest, context: RequestContext, error: KafkaError
) -> InitProducerIdResponse:
    """Reject the request with `error`."""
    return InitProducerIdResponse(error_code=error.code, producer_id=-1, producer_epoch=-1)
