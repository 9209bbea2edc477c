"""EndTxn (key 26): commit or abort a transaction (KIP-98).

  2  PRODUCER_FENCED may be answered (KIP-588)
  3  flexible
  4  TRANSACTION_ABORTABLE may be answered (KIP-890)
  5  the next transaction has another epoch, which is answered (KIP-890)

Versions 0 and 1 are the same.
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, field, int16, int32, int64


class EndTxnRequest(ApiMessage, api_key=ApiKey.END_TXN, versions="0-5", flexible="3+"):
    """How a transaction is to end."""

    transactional_id: str = field()
    producer_id: int64 = field()
    producer_epoch: int16 = field()
    committed: bool = field()


class EndTxnResponse(ApiMessage, api_key=ApiKey.END_TXN, versions="0-5", flexible="3+"):
    """Whether it ends so, and under which id and epoch the producer goes on."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    producer_id: int64 = field("5+", default=-1, ignorable=True)
    producer_epoch: int16 = field("5+", default=-1, ignorable=True)
