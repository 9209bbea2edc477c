"""Detection of other protocols from the first bytes of a connection."""

from __future__ import annotations

import struct

import pytest

from plogd.net.wrong_protocol import explain_first_bytes, explain_not_tls


@pytest.mark.parametrize(
    ("first_bytes", "mistake", "remedy"),
    [
        (b"GET /metrics HTTP/1.1", "an HTTP request", "plog.http.port"),
        (b"POST /topics HTTP/1.1", "an HTTP request", "plog.http.port"),
        (b"PRI * HTTP/2.0", "an HTTP request", "plog.http.port"),
        (b"\x16\x03\x01\x02\x00\x01", "a TLS handshake", "security.protocol=PLAINTEXT"),
        (b"SSH-2.0-OpenSSH_9.2", "an SSH greeting", "port number"),
        (b"PROXY TCP4 ", "a PROXY protocol header", "load balancer"),
        (b"ruok", "a ZooKeeper command", "2181"),
        (b"AMQP\x00\x00\x09\x01", "an AMQP header", "check the port"),
        (bytes.fromhex("0000000804d2162f"), "a PostgreSQL request", "5432"),
        (bytes.fromhex("0000000804d21630"), "a PostgreSQL request", "5432"),
        (b"EHLO example.org", "text: it starts with 'EHLO'", "check the port"),
    ],
)
def test_wrong_protocol_and_its_remedy_are_named(
    first_bytes: bytes, mistake: str, remedy: str
) -> None:
    text = explain_first_bytes(first_bytes[:8], "PLAINTEXT")
    assert text is not None
    assert text.startswith(mistake)
    assert remedy in text


@pytest.mark.parametrize("size", [1, 35, 1 << 20, 100 << 20])
def test_valid_request_size_is_not_a_wrong_protocol(size: int) -> None:
    assert explain_first_bytes(struct.pack(">i", size), "PLAINTEXT") is None
    assert explain_first_bytes(struct.pack(">ihh", size, 18, 3), "PLAINTEXT") is None


def test_tls_on_a_plain_listener_names_the_listener() -> None:
    text = explain_first_bytes(b"\x16\x03\x01\x02", "INSIDE")
    assert text is not None
    assert "listener INSIDE does not use TLS" in text


@pytest.mark.parametrize(
    ("first_bytes", "kind", "remedy"),
    [
        (struct.pack(">ihh", 35, 18, 3), "plain on tls", "security.protocol=SSL"),
        (b"\0", "plain on tls", "OUTSIDE uses TLS"),
        (b"GET / HTTP/1.1", "an HTTP request", "plog.http.port"),
        (bytes.fromhex("0000000804d2162f"), "a PostgreSQL request", "5432"),
        (b"\x80\x2e\x01", "no tls", "80 2e 01"),
    ],
)
def test_wrong_protocol_on_a_tls_listener_is_named(
    first_bytes: bytes, kind: str, remedy: str
) -> None:
    found, text = explain_not_tls(first_bytes, "OUTSIDE")
    assert found == kind
    assert remedy in text
