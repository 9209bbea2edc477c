"""The bytes of a connection, in pieces of any size: the same requests come out as go in.

The first byte is the size of the pieces. Nothing of the shared buffer is kept between two turns, so
it is overwritten there.
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
    """Compare with the plainest reading of the same bytes."""
    if not data:
        return
    stream = data[1:]
    assert list(_received(stream, 1 + 37 * data[0])) == list(_expected(stream))


def _expected(stream: bytes) -> Iterator[bytes | int]:
    """The requests, and the size that is none."""
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


def _received(stream: bytes, piece: int) -> Iterator[bytes | int]:
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
        taken = stream[position : position + min(piece, len(target))]
        assert taken, "there is always room for more"
        target[: len(taken)] = taken
        target.release()
        buffer.received(len(taken))
        position += len(taken)
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
    for piece in (0, 1, 3, 255):
        yield bytes([piece]) + small * 3
        yield bytes([piece]) + small + struct.pack(">i", -1)
        yield bytes([piece]) + small + struct.pack(">i", 70_000) + bytes(66_000)
    yield b"\xff" + struct.pack(">i", 70_000) + bytes(70_000) + small
    yield b"\xff" + struct.pack(">i", (1 << 31) - 1)


TARGET = Target(name="frames", fuzz=fuzz, seeds=_seeds)
