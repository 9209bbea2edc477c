"""Attacks on a TLS listener; the probe uses the plaintext listener."""

from __future__ import annotations

import ssl
from contextlib import ExitStack

import pytest

from tests.attack.conftest import Attack
from tests.attack.target import Target
from tests.fault.peers import Peer, ping_frame
from tests.helpers.certificates import Authority

_COUNT = 300
_OTHER_PARTS = ("nothing", "garbage", "kafka")


@pytest.fixture(scope="module")
def target_settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Settings for a plaintext and a TLS listener."""
    keystore = tmp_path_factory.mktemp("tls") / "broker.pem"
    return {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        "ssl.keystore.location": str(Authority().server().keystore(keystore)),
    }


def _client_hello() -> bytes:
    """Return the first flight of a TLS client."""
    outgoing = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="127.0.0.1")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


@pytest.mark.parametrize(
    "part",
    ["half", "hello", *(pytest.param(x, marks=pytest.mark.long) for x in _OTHER_PARTS)],
)
def test_300_unfinished_handshakes(target: Target, attack: Attack, part: str) -> None:
    hello = _client_hello()
    data = {
        "nothing": b"",
        "half": hello[: len(hello) // 2],
        "hello": hello,
        "garbage": b"\x16\x03\x01\xff\xff" + bytes(20_000),
        "kafka": ping_frame(),
    }[part]
    with attack(), ExitStack() as stack:
        for _ in range(_COUNT):
            peer = stack.enter_context(Peer(target.broker.addresses[1]))
            try:
                peer.send(data)
            except ConnectionError:
                pass
        with target.connect() as other:
            for _ in range(50):
                other.ping()


def test_50_finished_handshakes_and_pipelines_that_are_never_read(
    target: Target, attack: Attack
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with attack(), ExitStack() as stack:
        for _ in range(50):
            peer = Peer(target.broker.addresses[1], context, receive_buffer=4096)
            stack.enter_context(peer).send_without_blocking(ping_frame() * 500)
        with target.connect() as other:
            for _ in range(50):
                other.ping()
