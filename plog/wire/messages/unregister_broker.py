"""UnregisterBroker (key 64): forget a broker that will not come back (KIP-500). Not served here."""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, field, int16, int32


class UnregisterBrokerRequest(
    ApiMessage, api_key=ApiKey.UNREGISTER_BROKER, versions="0", flexible="0+"
):
    """Which broker."""

    broker_id: int32 = field()


class UnregisterBrokerResponse(
    ApiMessage, api_key=ApiKey.UNREGISTER_BROKER, versions="0", flexible="0+"
):
    """What became of it."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: str | None = field(default=None)
