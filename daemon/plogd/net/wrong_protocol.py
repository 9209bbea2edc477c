"""Recognize clients that use a protocol other than Kafka's, or no TLS, by their first bytes.

A Kafka connection starts with a four-byte size of at most ``socket.request.max.bytes``. Other
protocols that reach a broker's port by mistake start with text or a TLS record; read as a size,
this would be hundreds of megabytes. connection.py calls this module once per connection to a plain
listener, and tls_port.py calls it for TLS listeners, to explain in the log why the connection is
closed.
"""

from __future__ import annotations

_HTTP = (
    "an HTTP request: this port uses the Kafka protocol; for browsers and metrics scrapers, use"
    " plog.http.port"
)
_FOUR_LETTERS = (
    "a ZooKeeper command: this port uses the Kafka protocol; ZooKeeper listens on another port,"
    " by default 2181"
)
_MISTAKES = {
    b"SSH-": "an SSH greeting: this port uses the Kafka protocol; check the port number",
    b"PROX": "a PROXY protocol header: disable it for this port in the load balancer",
    # The start of the signature in version 2 of the PROXY protocol.
    b"\r\n\r\n": "a PROXY protocol header: disable it for this port in the load balancer",
    b"AMQP": "an AMQP header: this port uses the Kafka protocol; check the port number",
    **dict.fromkeys(
        # HTTP/2 starts with "PRI * HTTP/2.0".
        (b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"DELE", b"PATC", b"CONN", b"TRAC", b"PRI "),
        _HTTP,
    ),
    **dict.fromkeys((b"ruok", b"srvr", b"stat", b"mntr", b"conf", b"envi"), _FOUR_LETTERS),
}
_POSTGRES = (
    "a PostgreSQL request: this port uses the Kafka protocol; PostgreSQL listens on another port,"
    " by default 5432"
)
# The first messages of PostgreSQL clients, which request TLS or GSSAPI. They start with a valid
# size, so the client would otherwise be reported as slow.
_POSTGRES_REQUESTS = (bytes.fromhex("0000000804d2162f"), bytes.fromhex("0000000804d21630"))
_TLS_HANDSHAKE = b"\x16\x03"
"""A handshake record, and the major version (RFC 8446, section 5.1)."""
_TEXT = frozenset((*range(0x20, 0x7F), *b"\r\n\t"))


def explain_first_bytes(first_bytes: bytes, listener_name: str) -> str | None:
    """Return what the client sent, a colon, and a remedy; None if it may be a Kafka request.

    `first_bytes` contains at least four bytes; recognizing PostgreSQL takes eight.

    >>> explain_first_bytes(b"SSH-", "PLAINTEXT")
    'an SSH greeting: this port uses the Kafka protocol; check the port number'
    >>> explain_first_bytes(bytes([0, 0, 0, 35]), "PLAINTEXT") is None
    True
    """
    if first_bytes[:8] in _POSTGRES_REQUESTS:
        return _POSTGRES
    first_four_bytes = first_bytes[:4]
    if first_four_bytes[:2] == _TLS_HANDSHAKE:
        return (
            f"a TLS handshake: listener {listener_name} does not use TLS; set"
            " security.protocol=PLAINTEXT in the client, or connect it to a TLS listener"
        )
    mistake = _MISTAKES.get(first_four_bytes)
    if mistake is None and _TEXT.issuperset(first_four_bytes):
        return (
            f"text: it starts with {first_four_bytes.decode('ascii')!r}, but this port uses the"
            " Kafka protocol; check the port number"
        )
    return mistake


def explain_not_tls(first_bytes: bytes, listener_name: str) -> tuple[str, str]:
    """Return a kind and an explanation for first bytes on a TLS listener that are not TLS.

    >>> explain_not_tls(b"ruok", "SSL")[0]
    'a ZooKeeper command'
    """
    first_four = first_bytes[:4]
    mistake = explain_first_bytes(first_bytes[:8], listener_name)
    if mistake is not None and len(first_four) == 4:
        return mistake.partition(":")[0], f"sent {mistake}"
    # A Kafka request smaller than 16 MiB starts with a zero byte.
    if first_four[:1] == b"\0":
        return (
            "plain on tls",
            f"sent an unencrypted Kafka request: listener {listener_name} uses TLS; set"
            " security.protocol=SSL in the client, or connect it to another listener",
        )
    return (
        "no tls",
        f"does not use TLS: its first bytes are {first_four.hex(' ')}; check the port number",
    )
