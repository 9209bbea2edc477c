"""The paper's two loads on RabbitMQ: AMQP 0-9-1 over a plain socket, its frames encoded once.

Messages are persistent and go through the default exchange to a durable classic queue. With acks,
the producer requests publisher confirms and keeps `depth` messages unconfirmed; without, it sends
as fast as the socket accepts and requests one confirm at the end. The consumer uses no acks, which
is RabbitMQ's fastest mode. Layouts: AMQP 0-9-1 specification, sections 2.3 and 4.2; confirms are
RabbitMQ's extension, class 85.
"""

from __future__ import annotations

import socket
import struct
import sys
from typing import Any

from tests.bench.meter import Meter, per_message
from tests.bench.options import Options
from tests.bench.payloads import payloads

_METHOD, _HEADER, _BODY, _END = 1, 2, 3, 0xCE
_BASIC = 60
_PERSISTENT = struct.pack(">HB", 1 << 12, 2)
"""Property flags: only the delivery mode is present, with the value 2."""
_ACK_FRAME_BYTES = 21
_RECEIVE_BYTES = 1 << 18


def _frame(kind: int, channel: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + bytes([_END])


def _method(class_id: int, method_id: int, arguments: bytes, channel: int = 1) -> bytes:
    return _frame(_METHOD, channel, struct.pack(">HH", class_id, method_id) + arguments)


def _short(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


def _long(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def publish_frames(queue: str, body: bytes) -> bytes:
    """Return the frames of a message for `queue`: method, header and body."""
    header = struct.pack(">HHQ", _BASIC, 0, len(body)) + _PERSISTENT
    return (
        _method(_BASIC, 40, struct.pack(">H", 0) + _short("") + _short(queue) + b"\0")
        + _frame(_HEADER, 1, header)
        + _frame(_BODY, 1, body)
    )


class Channel:
    """Channel 1 of a new connection."""

    def __init__(self, options: Options) -> None:
        host, _, port = options.bootstrap.rpartition(":")
        self.socket = socket.create_connection((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rest = b""
        self.socket.sendall(b"AMQP\x00\x00\x09\x01")
        self._expect(10, 10)
        login = _long(b"") + _short("PLAIN") + _long(b"\0guest\0guest") + _short("en_US")
        self.socket.sendall(_method(10, 11, login, channel=0))
        channels, frame_max, _ = struct.unpack(">HIH", self._expect(10, 30))
        tune = struct.pack(">HIH", channels, frame_max, 0)  # No heartbeats.
        self.socket.sendall(_method(10, 31, tune, channel=0))
        self.call(10, 40, _short("/") + _short("") + b"\0", channel=0)
        self.call(20, 10, _short(""))

    def call(self, class_id: int, method_id: int, arguments: bytes, channel: int = 1) -> bytes:
        """Call a method; return the arguments of the response, which has the next method id."""
        self.socket.sendall(_method(class_id, method_id, arguments, channel))
        return self._expect(class_id, method_id + 1)

    def declare(self, queue: str) -> int:
        """Create the durable queue if it is missing; return its number of messages."""
        durable = 2
        response = self.call(50, 10, b"\0\0" + _short(queue) + bytes([durable]) + _long(b""))
        return int(struct.unpack_from(">I", response, 1 + response[0])[0])

    def receive(self) -> bytes:
        """Return the bytes received, at least one."""
        if rest := self._rest:
            self._rest = b""
            return rest
        data = self.socket.recv(_RECEIVE_BYTES)
        if not data:
            sys.exit("clientbench: RabbitMQ closed the connection")
        return data

    def _expect(self, class_id: int, method_id: int) -> bytes:
        data = self.receive()
        while len(data) < 8 or len(data) < 8 + struct.unpack_from(">I", data, 3)[0]:
            data += self.receive()
        end = 7 + struct.unpack_from(">I", data, 3)[0]
        if struct.unpack_from(">HH", data, 7) != (class_id, method_id):
            sys.exit(f"clientbench: RabbitMQ returned {data[7:end]!r}")
        self._rest = data[end + 1 :]
        return data[11:end]


def produce(options: Options, meter: Meter) -> dict[str, Any]:
    """Send `n` messages of `size` bytes to the queue that is named like the topic."""
    channel = Channel(options)
    channel.declare(options.topic)
    frames = [
        publish_frames(options.topic, body) for body in payloads(options.payload, options.size)
    ]
    channel.call(85, 10, b"\0")  # confirm.select
    confirms = Confirms(channel)
    window = options.n + options.warmup if options.acks == "0" else options.depth
    if options.warmup:
        _publish(confirms, frames, options.warmup, window)
    meter.start()
    _publish(confirms, frames, options.n, window)
    return per_message(meter.stop(), options.n, options.size)


def _publish(confirms: Confirms, frames: list[bytes], count: int, window: int) -> None:
    """Send `count` messages, with at most `window` of them unconfirmed."""
    first, last = confirms.all_up_to, confirms.all_up_to + count
    for sent in range(first, last):
        confirms.channel.socket.sendall(frames[sent % len(frames)])
        while sent + 1 - confirms.all_up_to >= window:
            confirms.receive()
    while confirms.all_up_to < last:
        confirms.receive()


class Confirms:
    """The confirmed messages: all up to a number, and some after it."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.all_up_to = 0
        self._beyond: set[int] = set()
        self._rest = b""

    def receive(self) -> None:
        """Wait for confirms and count the messages that they confirm."""
        data = self._rest + self.channel.receive()
        complete = len(data) - len(data) % _ACK_FRAME_BYTES
        for start in range(0, complete, _ACK_FRAME_BYTES):
            class_id, method_id, tag, multiple = struct.unpack_from(">HHQB", data, start + 7)
            if (class_id, method_id) != (_BASIC, 80):
                sys.exit(f"clientbench: RabbitMQ did not confirm: method {class_id} {method_id}")
            if multiple:
                self.all_up_to = max(self.all_up_to, tag)
                self._beyond = {one for one in self._beyond if one > tag}
            else:
                self._beyond.add(tag)
        self._rest = data[complete:]
        while self.all_up_to + 1 in self._beyond:
            self.all_up_to += 1
            self._beyond.remove(self.all_up_to)


def consume(options: Options, meter: Meter) -> dict[str, Any]:
    """Consume all messages of the queue, or `n`; then delete the queue."""
    channel = Channel(options)
    there = channel.declare(options.topic)
    wanted = min(options.n or there, there)
    if not wanted:
        sys.exit(f"clientbench: the queue {options.topic} is empty")
    no_ack = 2
    arguments = b"\0\0" + _short(options.topic) + _short("c") + bytes([no_ack]) + _long(b"")
    meter.start()
    channel.call(_BASIC, 20, arguments)
    data = channel.receive()
    while (each := delivery_bytes(data)) is None:
        data += channel.receive()
    # All deliveries have the same length: names, tag (8 bytes) and body do.
    received_bytes = len(data)
    while received_bytes < wanted * each:
        received_bytes += len(channel.receive())
    figures = per_message(meter.stop(), wanted, options.size)
    channel.socket.close()
    Channel(options).call(50, 40, b"\0\0" + _short(options.topic) + b"\0")
    return figures


def delivery_bytes(data: bytes) -> int | None:
    """Return the length of the first delivery, three frames, or None if it is incomplete."""
    position = 0
    for _ in range(3):
        if len(data) < position + 7:
            return None
        position += 8 + struct.unpack_from(">I", data, position + 3)[0]
    return position if len(data) >= position else None
