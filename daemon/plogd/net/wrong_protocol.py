"""What a client speaks that does not speak Kafka, or not TLS where it should, told from its start.

Kafka's first four bytes are a size below ``socket.request.max.bytes``. Those of the protocols that
end up on a broker's port by mistake are text, or a TLS record, and as a size they would be some
hundred megabytes. Pure; called once a connection, by connection.py for plain listeners and by
tls_port.py for the others, for their log line.
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
    b"\r\n\r\n": "a PROXY protocol header: switch it off for this port in the load balancer",
    b"AMQP": "an AMQP client: this port speaks Kafka's protocol, not RabbitMQ's; check the port",
    **dict.fromkeys(
        (b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"DELE", b"PATC", b"CONN", b"TRAC", b"PRI "),
        _HTTP,
    ),
    **dict.fromkeys((b"ruok", b"srvr", b"stat", b"mntr", b"conf", b"envi"), _FOUR_LETTERS),
}
_POSTGRES = (
    "a PostgreSQL client: this port speaks Kafka's protocol; PostgreSQL listens elsewhere, by"
    " default on port 5432"
)
# For TLS and for GSSAPI, which clients ask for before they begin. As sizes of a request they are
# too small, so without a look at them the client would be taken for a slow one.
_POSTGRES_REQUESTS = (bytes.fromhex("0000000804d2162f"), bytes.fromhex("0000000804d21630"))
_TLS_HANDSHAKE = b"\x16\x03"
_TEXT = frozenset((*range(0x20, 0x7F), *b"\r\n\t"))


def explain_first_bytes(first_bytes: bytes, listener_name: str) -> str | None:
    """What the client seems to be, a colon, and what to do; None if it may well speak Kafka.

    Of `first_bytes` there are at least four; with eight, PostgreSQL is known too.

    >>> explain_first_bytes(b"SSH-", "PLAINTEXT")
    "an SSH client: this port speaks Kafka's protocol, not SSH; check the port number"
    >>> explain_first_bytes(bytes([0, 0, 0, 35]), "PLAINTEXT") is None
    True
    """
    if first_bytes[:8] in _POSTGRES_REQUESTS:
        return _POSTGRES
    first_four_bytes = first_bytes[:4]
    if first_four_bytes[:2] == _TLS_HANDSHAKE:
        return (
            f"a TLS client: the listener {listener_name} is not encrypted; set"
            " security.protocol=PLAINTEXT in the client, or give it the address of a TLS listener"
        )
    mistake = _MISTAKES.get(first_four_bytes)
    if mistake is None and _TEXT.issuperset(first_four_bytes):
        return (
            f"text: it begins with {first_four_bytes.decode('ascii')!r}, and this port speaks"
            " Kafka's protocol; check the port number"
        )
    return mistake


def explain_not_tls(first_bytes: bytes, listener_name: str) -> tuple[str, str]:
    """For the first bytes of a TLS listener's client that are no TLS: a kind, and what was sent.

    >>> explain_not_tls(b"ruok", "SSL")[0]
    'a ZooKeeper command'
    """
    first_four = first_bytes[:4]
    mistake = explain_first_bytes(first_bytes[:8], listener_name)
    if mistake is not None and len(first_four) == 4:
        return mistake.partition(":")[0], f"sent {mistake}"
    if first_four[:1] == b"\0":
        return (
            "plain on tls",
            "sent a Kafka request in the clear: set security.protocol=SSL in the client, or give"
            f" it the address of another listener; {listener_name} is encrypted",
        )
    return (
        "no tls",
        f"does not speak TLS: its first bytes are {first_four.hex(' ')}; check the port number",
    )
