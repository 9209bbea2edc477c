"""Build response frames (size, header and message) from as few parts as possible.

The transport writes parts that are bytes, and sends parts that are slices of files with sendfile.
plogd/net/receive_buffer.py extracts frames from received bytes.
"""

from __future__ import annotations

import struct

from plog.wire.header import RequestHeader, response_tags
from plog.wire.primitives import Part
from plog.wire.schema import ApiMessage

_START = struct.Struct(">ii")  # size, correlation id
_LARGE_PART_BYTES = 4096
"""Maximum size of a first part that is copied to join it with the header."""


def frame_response(
    api_key: int, version: int, correlation_id: int, message: ApiMessage
) -> list[Part]:
    """Return the parts of a response; the first part is bytes and starts with the size."""
    header = RequestHeader(api_key, version, correlation_id)
    return frame_parts(header, message.encode_parts(version))


def frame_parts(request: RequestHeader, parts: list[Part]) -> list[Part]:
    """Return the parts of a response; `parts` is the encoded message, and is not changed."""
    api_key, version, correlation_id, _ = request
    tags = response_tags(api_key, version)
    size = 4 + len(tags)
    # This function frames every response, and a loop is faster than a sum over a generator.
    for part in parts:
        size += len(part) if isinstance(part, bytes) else part.nbytes
    start = _START.pack(size, correlation_id) + tags
    first = parts[0] if parts else b""
    assert isinstance(first, bytes), "records always follow their length"
    # A large part may be shared: the same encoded Metadata response is sent to many clients.
    if len(first) > _LARGE_PART_BYTES:
        return [start, *parts]
    # A small response becomes a single part, so that the output queue need not join parts.
    return [start + first, *parts[1:]]
