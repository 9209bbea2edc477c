"""EndTxn (key 26): commit or abort a transaction (KIP-98).

Changes by version:

  2  PRODUCER_FENCED may be returned (KIP-588)
  3  flexible
  4  TRANSACTION_ABORTABLE may be returned (KIP-890)
  5  the response contains the epoch of the next transaction (KIP-890)

Versions 0 and 1 are identical.
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, field, int16, int32, int64


class EndTxnRequest(ApiMessage, api_key=ApiKey.END_TXN, versions="0-5", flexible="3+"):
    """The transaction, and whether to commit or abort it."""

    transactional_id: str = field()
    producer_id: int64 = field()
    producer_epoch: int16 = field()
    committed: bool = field()


class EndTxnResponse(ApiMessage, api_key=ApiKey.END_TXN, versions="0-5", flexible="3+"):
    """The result, and the producer id and epoch of the next transaction."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    producer_id: int64 = field("5+", default=-1, ignorable=True)
    # Each transaction has its own epoch, so a late request of the previous one is rejected.
    producer_epoch: int16 = field("5+", default=-1, ignorable=True)
