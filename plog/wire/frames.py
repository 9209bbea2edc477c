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
_LARGE_PART_BYTES = 4096
"""A larger first part is not copied to stand in one piece with the header: it may be shared."""


def frame_response(
    api_key: int, version: int, correlation_id: int, message: ApiMessage
) -> list[Part]:
    """The parts of a response, in order; the first one is bytes and begins with the size."""
    return frame_parts(api_key, version, correlation_id, message.encode_parts(version))


def frame_parts(api_key: int, version: int, correlation_id: int, parts: list[Part]) -> list[Part]:
    """As `frame_response`, for a message that is encoded already; `parts` stays as it is."""
    header = encode_response_header(api_key, version, correlation_id)
    size = len(header) + sum(_part_size(part) for part in parts)
    first = parts[0] if parts else b""
    assert isinstance(first, bytes), "records always stand behind their length"
    if len(first) > _LARGE_PART_BYTES:
        return [_SIZE.pack(size) + header, *parts]
    return [_SIZE.pack(size) + header + first, *parts[1:]]


def _part_size(part: Part) -> int:
    return len(part) if isinstance(part, bytes) else part.nbytes
