"""A whole response as it leaves: size, header and message, in as few pieces as possible.

The pieces go to the transport, which sends the bytes as they are and a slice of a file without
reading it. The other direction, from received bytes to a frame, is net/receive_buffer.py's.
"""

from __future__ import annotations

import struct

from plog.wire.header import RequestHeader, response_tags
from plog.wire.primitives import Part
from plog.wire.schema import ApiMessage

_START = struct.Struct(">ii")  # size, correlation id
_LARGE_PART_BYTES = 4096
"""A larger first part is not copied to stand in one piece with the header: it may be shared."""


def frame_response(
    api_key: int, version: int, correlation_id: int, message: ApiMessage
) -> list[Part]:
    """The parts of a response, in order; the first one is bytes and begins with the size."""
    header = RequestHeader(api_key, version, correlation_id)
    return frame_parts(header, message.encode_parts(version))


def frame_encoded(request: RequestHeader, body: bytes) -> bytes:
    """Return the whole response to `request`, whose `body` is encoded already."""
    tags = response_tags(request.api_key, request.api_version)
    return _START.pack(4 + len(tags) + len(body), request.correlation_id) + tags + body


def frame_parts(request: RequestHeader, parts: list[Part]) -> list[Part]:
    """As `frame_response`, for a message that is encoded already; `parts` stays as it is."""
    api_key, version, correlation_id, _ = request
    tags = response_tags(api_key, version)
    size = 4 + len(tags)
    for part in parts:  # Not a generator: every response comes here.
        size += len(part) if isinstance(part, bytes) else part.nbytes
    start = _START.pack(size, correlation_id) + tags
    first = parts[0] if parts else b""
    assert isinstance(first, bytes), "records always stand behind their length"
    if len(first) > _LARGE_PART_BYTES:
        return [start, *parts]
    return [start + first, *parts[1:]]
