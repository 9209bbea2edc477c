"""SaslHandshake (key 17): choose the mechanism of a log-in.

  1  the log-in itself travels in SaslAuthenticate (KIP-152)

After version 0 the mechanism's bytes follow on the connection without headers; nobody should still
ask for that.
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, field, int16


class SaslHandshakeRequest(ApiMessage, api_key=ApiKey.SASL_HANDSHAKE, versions="0-1"):
    """The mechanism the client would log in by."""

    mechanism: str = field()


class SaslHandshakeResponse(ApiMessage, api_key=ApiKey.SASL_HANDSHAKE, versions="0-1"):
    """Whether it may, and the mechanisms there are."""

    error_code: int16 = field()
    mechanisms: list[str] = field()
