"""UnregisterBroker (key 64): remove a broker's registration (KIP-500). Not served."""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, field, int16, int32


class UnregisterBrokerRequest(
    ApiMessage, api_key=ApiKey.UNREGISTER_BROKER, versions="0", flexible="0+"
):
    """The broker to unregister."""

    broker_id: int32 = field()


class UnregisterBrokerResponse(
    ApiMessage, api_key=ApiKey.UNREGISTER_BROKER, versions="0", flexible="0+"
):
    """The result."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: str | None = field(default=None)
