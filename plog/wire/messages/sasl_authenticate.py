"""SaslAuthenticate (key 36): one step of an authentication, after SaslHandshake.

Changes by version:

  1  lifetime of the session (KIP-368)
  2  flexible
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, field, int16, int64


class SaslAuthenticateRequest(
    ApiMessage, api_key=ApiKey.SASL_AUTHENTICATE, versions="0-2", flexible="2+"
):
    """A message from the client's side of the mechanism."""

    auth_bytes: bytes = field()

    # The repr may be logged, and the message contains the password with the mechanism PLAIN.
    def __repr__(self) -> str:
        return "SaslAuthenticateRequest(…)"


class SaslAuthenticateResponse(
    ApiMessage, api_key=ApiKey.SASL_AUTHENTICATE, versions="0-2", flexible="2+"
):
    """A message from the server's side of the mechanism; a lifetime of 0 means no expiration."""

    error_code: int16 = field()
    error_message: str | None = field(nullable="0+")
    auth_bytes: bytes = field()
    # Before the end of this time, the client authenticates again on the same connection.
    session_lifetime_ms: int64 = field("1+", ignorable=True)
