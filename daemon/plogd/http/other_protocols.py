"""Recognize clients that use other protocols on the HTTP port by their first byte.

net/wrong_protocol.py recognizes HTTP on a Kafka port. Called by http_server.py.
"""

from __future__ import annotations

# The first byte of a Kafka request and of a TLS handshake; HTTP requests start with neither.
_MISTAKES = {
    b"\0": "a Kafka request: connect Kafka clients to an address of advertised.listeners",
    b"\x16": "a TLS handshake: plog.http.port does not support HTTPS; use http://",
}


def mistake_in(first_bytes: bytes) -> str | None:
    """Describe what the client sent instead of HTTP; None if it may be HTTP.

    >>> mistake_in(b"GET / HTTP/1.1") is None
    True
    """
    return _MISTAKES.get(first_bytes[:1])
