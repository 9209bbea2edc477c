"""Who is on the line, by four bytes."""

from __future__ import annotations

import struct

import pytest

from plogd.net.wrong_protocol import explain_first_bytes


@pytest.mark.parametrize(
    ("first_bytes", "mistake", "remedy"),
    [
        (b"GET /metrics HTTP/1.1", "an HTTP request", "plog.http.port"),
        (b"POST /topics HTTP/1.1", "an HTTP request", "plog.http.port"),
        (b"PRI * HTTP/2.0", "an HTTP request", "plog.http.port"),
        (b"\x16\x03\x01\x02\x00\x01", "a TLS client", "security.protocol=PLAINTEXT"),
        (b"SSH-2.0-OpenSSH_9.2", "an SSH client", "port number"),
        (b"PROXY TCP4 ", "a PROXY protocol header", "load balancer"),
        (b"ruok", "a ZooKeeper command", "2181"),
    ],
)
def test_the_mistake_and_its_remedy_are_named(
    first_bytes: bytes, mistake: str, remedy: str
) -> None:
    text = explain_first_bytes(first_bytes[:4])
    assert text is not None
    assert text.startswith(mistake)
    assert remedy in text


@pytest.mark.parametrize("size", [1, 35, 1 << 20, 100 << 20])
def test_no_usual_size_of_a_request_is_taken_for_a_mistake(size: int) -> None:
    assert explain_first_bytes(struct.pack(">i", size)) is None
