"""Attacks on the HTTP port, which shares the reactor with the listeners of Kafka's protocol."""

from __future__ import annotations

import stat
import urllib.request
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.attack.conftest import Attack
from tests.attack.target import Target
from tests.fault.peers import Peer
from tests.helpers.programs.kafka_server import free_port

_PORT = free_port()
_SERVER = f"127.0.0.1:{_PORT}"
_GET = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
_MEBIBYTE = bytes(1 << 20)


@pytest.fixture(scope="module")
def target_settings() -> dict[str, str]:
    """Enable the HTTP port, which is off in other tests."""
    return {"plog.http.port": str(_PORT)}


def _metrics() -> int:
    with urllib.request.urlopen(f"http://{_SERVER}/metrics", timeout=60) as answer:
        return len(answer.read())


@pytest.mark.parametrize(
    ("connections", "requests"),
    [(1, 20_000), (20, 500), pytest.param(300, 10, marks=pytest.mark.long)],
)
def test_metrics_pipelined_and_never_read(
    target: Target, attack: Attack, connections: int, requests: int
) -> None:
    with attack(), ExitStack() as stack:
        for _ in range(connections):
            peer = stack.enter_context(Peer(_SERVER, receive_buffer=4096))
            peer.send_without_blocking(_GET * requests)
        with target.connect() as other:
            for _ in range(50):
                other.ping()
        assert _metrics()


def test_metrics_pipelined_and_read(target: Target, attack: Attack) -> None:
    """All responses are complete; the broker may close the connection before the last one."""
    with attack(), Peer(_SERVER) as peer:
        with suppress(ConnectionError):
            peer.send(_GET * 500 + b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert peer.read_until_closed().startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(
            b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000000\r\n\r\n",
            id="length",
        ),
        pytest.param(
            b"POST /metrics HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n40000000\r\n",
            id="chunked",
        ),
        pytest.param(b"GET /metrics HTTP/1.1\r\nHost: x\r\nX: ", id="header"),
        pytest.param(b"GET /", id="line"),
    ],
)
def test_endless_http_request(target: Target, attack: Attack, head: bytes) -> None:
    """The client sends 100 MB; the broker keeps none of them and closes the connection."""
    with attack(), Peer(_SERVER) as peer:
        with suppress(ConnectionError):
            peer.send(head)
            for _ in range(100):
                peer.send(_MEBIBYTE)
        spooled = _spooled_bytes(target)
        assert spooled < len(_MEBIBYTE), f"{spooled:,} bytes are kept in files"
        with suppress(OSError):
            peer.stop_sending()
        peer.read_until_closed()
        assert _metrics()


def _spooled_bytes(target: Target) -> int:
    """Return the size of open files without a name, such as temporary files."""
    total = 0
    for entry in Path(f"/proc/{target.broker.pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            status = entry.stat()
            total += status.st_size if stat.S_ISREG(status.st_mode) and not status.st_nlink else 0
    return total


def test_500_http_connections_without_a_request(target: Target, attack: Attack) -> None:
    with attack(), ExitStack() as stack:
        for _ in range(500):
            stack.enter_context(Peer(_SERVER)).send(b"GET /metr")
        assert _metrics()
