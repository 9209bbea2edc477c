"""AddOffsetsToTxn (key 25): add a group's offsets to a transaction (KIP-98).

Changes by version:

  2  PRODUCER_FENCED may be returned (KIP-588)
  3  flexible
  4  TRANSACTION_ABORTABLE may be returned (KIP-890)

Versions 0 and 1 are identical.
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, field, int16, int32, int64


class AddOffsetsToTxnRequest(
    ApiMessage, api_key=ApiKey.ADD_OFFSETS_TO_TXN, versions="0-4", flexible="3+"
):
    """The group whose offsets the transaction will commit."""

    transactional_id: str = field()
    producer_id: int64 = field()
    producer_epoch: int16 = field()
    # Its partition of __consumer_offsets joins the transaction, so it gets a marker at the end.
    group_id: str = field()


class AddOffsetsToTxnResponse(
    ApiMessage, api_key=ApiKey.ADD_OFFSETS_TO_TXN, versions="0-4", flexible="3+"
):
    """Whether the group was added to the transaction."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
