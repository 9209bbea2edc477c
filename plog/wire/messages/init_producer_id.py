"""InitProducerId (key 22): an id and epoch for an idempotent or transactional producer (KIP-98).

Changes by version:

  2  flexible
  3  the producer may send its previous id and epoch, to continue with them (KIP-360)
  4  PRODUCER_FENCED may be returned (KIP-588)
  5  TRANSACTION_ABORTABLE may be returned (KIP-890)
  6  two-phase commit (KIP-939); unstable in Kafka 4.3, so not advertised

Versions 0 and 1 are identical.
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, field, int16, int32, int64


class InitProducerIdRequest(
    ApiMessage, api_key=ApiKey.INIT_PRODUCER_ID, versions="0-6", flexible="2+"
):
    """A producer that starts, or recovers from an error."""

    transactional_id: str | None = field()
    transaction_timeout_ms: int32 = field()
    producer_id: int64 = field("3+", default=-1)
    producer_epoch: int16 = field("3+", default=-1)
    enable2_pc: bool = field("6+")  # as_json converts it to Kafka's name, enable2Pc.
    keep_prepared_txn: bool = field("6+")


class InitProducerIdResponse(
    ApiMessage, api_key=ApiKey.INIT_PRODUCER_ID, versions="0-6", flexible="2+"
):
    """The producer id and epoch to use."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    producer_id: int64 = field(default=-1)
    producer_epoch: int16 = field()
    ongoing_txn_producer_id: int64 = field("6+", default=-1)
    ongoing_txn_producer_epoch: int16 = field("6+", default=-1)
