"""SaslHandshake (key 17): select a SASL mechanism.

Changes by version:

  1  the authentication uses SaslAuthenticate (KIP-152)

After a request in version 0, which is obsolete, the client sends the mechanism's messages without
headers.
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, field, int16


class SaslHandshakeRequest(ApiMessage, api_key=ApiKey.SASL_HANDSHAKE, versions="0-1"):
    """The mechanism that the client wants to use."""

    mechanism: str = field()


class SaslHandshakeResponse(ApiMessage, api_key=ApiKey.SASL_HANDSHAKE, versions="0-1"):
    """The outcome for the requested mechanism, and a list of all enabled mechanisms."""

    error_code: int16 = field()
    # Also set with an error, so that the client can report which mechanisms it could use.
    mechanisms: list[str] = field()
