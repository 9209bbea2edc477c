"""Build a response frame: size, header and message, in as few parts as possible.

The transport sends the parts: bytes directly, and slices of files without reading them.
net/receive_buffer.py extracts frames from received bytes.
"""

from __future__ import annotations

import struct

from plog.wire.header import RequestHeader, response_tags
from plog.wire.primitives import Part
from plog.wire.schema import ApiMessage

_START = struct.Struct(">ii")  # size, correlation id
_LARGE_PART_BYTES = 4096
"""A larger first part is not copied to join it with the header, because it may be shared."""


def frame_response(
    api_key: int, version: int, correlation_id: int, message: ApiMessage
) -> list[Part]:
    """Return the parts of a response, in order; the first one is bytes and starts with the size."""
    header = RequestHeader(api_key, version, correlation_id)
    return frame_parts(header, message.encode_parts(version))


def frame_encoded(request: RequestHeader, body: bytes) -> bytes:
    """Return the complete response to `request`, for a `body` that is already encoded."""
    tags = response_tags(request.api_key, request.api_version)
    return _START.pack(4 + len(tags) + len(body), request.correlation_id) + tags + body


def frame_parts(request: RequestHeader, parts: list[Part]) -> list[Part]:
    """Return the parts of a response whose message is already encoded; `parts` is not changed."""
    api_key, version, correlation_id, _ = request
    tags = response_tags(api_key, version)
    size = 4 + len(tags)
    for part in parts:  # A loop is faster than a generator, and every response is framed here.
        size += len(part) if isinstance(part, bytes) else part.nbytes
    start = _START.pack(size, correlation_id) + tags
    first = parts[0] if parts else b""
    assert isinstance(first, bytes), "records always follow their length"
    if len(first) > _LARGE_PART_BYTES:
        return [start, *parts]
    # A small response then consists of a single part, which the output queue need not join.
    return [start + first, *parts[1:]]
