"""A whole response as it leaves: size, header and message, in as few pieces as possible.

The pieces go to the transport, which sends the bytes as they are and a slice of a file without
reading it. The other direction, from received bytes to a frame, is net/receive_buffer.py's.
"""

from __future__ import annotations

import struct

from plog.wire.header import encode_response_header
from plog.wire.primitives import Part
from plog.wire.schema import ApiMessage

_SIZE = struct.Struct(">i")


def frame_response(
    api_key: int, version: int, correlation_id: int, message: ApiMessage
) -> list[Part]:
    """The parts of a response, in order; the first one is bytes and begins with the size."""
    parts = message.encode_parts(version)
    header = encode_response_header(api_key, version, correlation_id)
    size = len(header) + sum(_part_size(part) for part in parts)
    first = parts[0] if parts else b""
    assert isinstance(first, bytes), "records always stand behind their length"
    return [_SIZE.pack(size) + header + first, *parts[1:]]


def _part_size(part: Part) -> int:
    return len(part) if isinstance(part, bytes) else part.nbytes
