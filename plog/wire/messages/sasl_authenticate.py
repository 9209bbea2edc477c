"""SaslAuthenticate (key 36): one step of a log-in, in the mechanism SaslHandshake has chosen.

1  how long the session lasts (KIP-368)
2  flexible
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, field, int16, int64


class SaslAuthenticateRequest(
    ApiMessage, api_key=ApiKey.SASL_AUTHENTICATE, versions="0-2", flexible="2+"
):
    """What the mechanism's client says."""

    auth_bytes: bytes = field()


class SaslAuthenticateResponse(
    ApiMessage, api_key=ApiKey.SASL_AUTHENTICATE, versions="0-2", flexible="2+"
):
    """What its server says; with a lifetime of 0 the session does not end."""

    error_code: int16 = field()
    error_message: str | None = field(nullable="0+")
    auth_bytes: bytes = field()
    session_lifetime_ms: int64 = field("1+", ignorable=True)
