"""The paper's two loads on ActiveMQ: STOMP 1.2 over a plain socket, its frames encoded once.

Messages are persistent and go to a queue. With acks, every message requests a receipt and `depth`
receipts may be outstanding; without, only the last message does. The consumer acknowledges
automatically, with a prefetch of 1000 messages as in the paper.
"""

from __future__ import annotations

import socket
import sys
from typing import Any

from tests.bench.meter import Meter, per_message
from tests.bench.options import Options
from tests.bench.payloads import payloads

_RECEIVE_BYTES = 1 << 18
_PREFETCH = 1000


class _Connection:
    """A connection. Every frame ends with a NUL; the bodies are text without NULs."""

    def __init__(self, options: Options) -> None:
        host, _, port = options.bootstrap.rpartition(":")
        self.socket = socket.create_connection((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(b"CONNECT\naccept-version:1.2\nhost:localhost\n\n\0")
        data = b""
        while b"\0" not in data:
            data += self.receive()
        if not data.startswith(b"CONNECTED"):
            sys.exit(f"clientbench: ActiveMQ returned {data!r}")

    def receive(self) -> bytes:
        """Return the bytes received, at least one."""
        data = self.socket.recv(_RECEIVE_BYTES)
        if not data or b"ERROR\n" in data[:8]:
            sys.exit(f"clientbench: ActiveMQ closed the connection: {data[:200]!r}")
        return data

    def receive_frames(self) -> int:
        """Receive once; return the number of frames completed."""
        return self.receive().count(b"\0")


def _send_frame(queue: str, body: bytes, *, receipt: bool) -> bytes:
    wanted = b"receipt:r\n" if receipt else b""
    head = f"SEND\ndestination:/queue/{queue}\npersistent:true\ncontent-length:{len(body)}\n"
    return head.encode() + wanted + b"\n" + body + b"\0"


def produce(options: Options, meter: Meter) -> dict[str, Any]:
    """Send `n` messages of `size` bytes to the queue that is named like the topic."""
    connection = _Connection(options)
    if options.warmup:
        _send(connection, options, options.warmup)
    meter.start()
    _send(connection, options, options.n)
    return per_message(meter.stop(), options.n, options.size)


def _send(connection: _Connection, options: Options, count: int) -> None:
    each = options.acks != "0"
    bodies = payloads(options.payload, options.size)
    frames = [_send_frame(options.topic, body, receipt=each) for body in bodies]
    last = _send_frame(options.topic, bodies[0], receipt=True)
    in_flight = 0
    for i in range(count - 1):
        connection.socket.sendall(frames[i % len(frames)])
        in_flight += each
        while in_flight >= options.depth:
            in_flight -= connection.receive_frames()
    connection.socket.sendall(last)
    in_flight += 1
    while in_flight > 0:
        in_flight -= connection.receive_frames()


def consume(options: Options, meter: Meter) -> dict[str, Any]:
    """Consume `n` messages of the queue."""
    connection = _Connection(options)
    subscribe = (
        f"SUBSCRIBE\nid:1\ndestination:/queue/{options.topic}\nack:auto\n"
        f"activemq.prefetchSize:{_PREFETCH}\n\n\0"
    )
    meter.start()
    connection.socket.sendall(subscribe.encode())
    received = 0
    while received < options.n:
        received += connection.receive_frames()
    return per_message(meter.stop(), received, options.size)
