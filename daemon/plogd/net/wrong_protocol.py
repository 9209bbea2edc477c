"""What a client speaks that does not speak Kafka, told from the first four bytes it sends.

Kafka's first four bytes are a size below ``socket.request.max.bytes``. Those of the protocols that
end up on a broker's port by mistake are text, or a TLS record, and as a size they would be some
hundred megabytes. Pure; called by connection.py once a connection, for its log line.
"""

from __future__ import annotations

_HTTP = (
    "an HTTP request: this port speaks Kafka's protocol, so give its address to Kafka clients only;"
    " a browser or a metrics scraper wants plog.http.port"
)
_FOUR_LETTERS = (
    "a ZooKeeper command: this port speaks Kafka's protocol; ZooKeeper itself listens elsewhere,"
    " by default on port 2181"
)
_MISTAKES = {
    b"SSH-": "an SSH client: this port speaks Kafka's protocol, not SSH; check the port number",
    b"PROX": "a PROXY protocol header: switch it off for this port in the load balancer",
    **dict.fromkeys(
        (b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"DELE", b"PATC", b"CONN", b"TRAC", b"PRI "),
        _HTTP,
    ),
    **dict.fromkeys((b"ruok", b"srvr", b"stat", b"mntr", b"conf", b"envi"), _FOUR_LETTERS),
}
_TLS_HANDSHAKE = b"\x16\x03"


def explain_first_bytes(first_four_bytes: bytes) -> str | None:
    """What the client seems to be and what to do about it; None if it may well speak Kafka.

    >>> explain_first_bytes(b"SSH-")
    "an SSH client: this port speaks Kafka's protocol, not SSH; check the port number"
    >>> explain_first_bytes(bytes([0, 0, 0, 35])) is None
    True
    """
    if first_four_bytes[:2] == _TLS_HANDSHAKE:
        return (
            "a TLS client: this listener is not encrypted; set security.protocol=PLAINTEXT in the"
            " client, or use the port of a TLS listener"
        )
    return _MISTAKES.get(first_four_bytes)
