"""The bytes of a connection, in pieces of any size: the broker extracts the same requests.

The first byte is the size of the pieces. The shared buffer keeps nothing between two turns, so the
target overwrites it there.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from plogd.net.receive_buffer import BadFrameSize, ReceiveBuffer
from plogd.net.request_memory import RequestMemory
from tests.fuzz.target import Target

_MAX_FRAME_BYTES = 200_000
_SHARED_BYTES = 70_000


def fuzz(data: bytes) -> None:
    """Compare the receive buffer with a simple parser of the same bytes."""
    if not data:
        return
    stream = data[1:]
    assert list(_received(stream, 1 + 37 * data[0])) == list(_expected(stream))


def _expected(stream: bytes) -> Iterator[bytes | int]:
    """Yield the requests, and finally an invalid size, if any."""
    position = 0
    while position + 4 <= len(stream):
        (size,) = struct.unpack_from(">i", stream, position)
        position += 4
        if not 0 < size <= _MAX_FRAME_BYTES:
            yield size
            return
        if position + size > len(stream):
            return
        yield stream[position : position + size]
        position += size


def _received(stream: bytes, piece_bytes: int) -> Iterator[bytes | int]:
    memory = RequestMemory(-1)
    shared = bytearray(_SHARED_BYTES)
    buffer = ReceiveBuffer(
        memoryview(shared),
        memory,
        host="fuzz",
        max_frame_bytes=_MAX_FRAME_BYTES,
        on_memory=lambda: None,
    )
    position = 0
    while position < len(stream):
        target = buffer.target(is_blocked=False)
        piece = stream[position : position + min(piece_bytes, len(target))]
        assert piece, "the receive buffer has no space"
        target[: len(piece)] = piece
        target.release()
        buffer.received(len(piece))
        position += len(piece)
        try:
            while (frame := buffer.next_frame()) is not None:
                yield bytes(frame)
                frame.release()
                buffer.consume()
        except BadFrameSize as error:
            yield error.size
            return
        buffer.keep()
        shared[:] = b"\xee" * len(shared)
    buffer.close()
    assert memory.used_bytes == 0


def _seeds() -> Iterator[bytes]:
    small = struct.pack(">i", 5) + b"abcde"
    for piece_bytes in (0, 1, 3, 255):
        yield bytes([piece_bytes]) + small * 3
        yield bytes([piece_bytes]) + small + struct.pack(">i", -1)
        yield bytes([piece_bytes]) + small + struct.pack(">i", 70_000) + bytes(66_000)
    yield b"\xff" + struct.pack(">i", 70_000) + bytes(70_000) + small
    yield b"\xff" + struct.pack(">i", (1 << 31) - 1)


TARGET = Target(name="frames", fuzz=fuzz, seeds=_seeds)
