"""Recognize clients of other protocols on the HTTP port by their first byte.

HTTP itself would only wait for a line that never ends, and the client for its response. The
opposite, HTTP on a Kafka port, is in net/wrong_protocol.py. Called by http_server.py.
"""

from __future__ import annotations

# The first byte of a Kafka request, and of a TLS handshake; never one of HTTP.
_MISTAKES = {
    b"\0": "a Kafka request: Kafka clients use an address of advertised.listeners or listeners",
    b"\x16": "a TLS handshake: there is no https here",
}


def mistake_in(first_bytes: bytes) -> str | None:
    """Describe what the client sent instead of HTTP; None if it may be HTTP.

    >>> mistake_in(b"GET / HTTP/1.1") is None
    True
    """
    return _MISTAKES.get(first_bytes[:1])
