"""What stands before a request and a response: who asks what, and which answer belongs to it.

    request   size int32 | api key int16 | version int16 | correlation id int32 | client id | tags?
    response  size int32 | correlation id int32 | tags?

The tags are there when the message itself is flexible (KIP-482), with one exception: the response
to ApiVersions never has them, since its reader does not know yet what the writer speaks (KIP-511).
The client id has a two-byte length in every version. Frames are without their size here, except
what `encode_request` returns.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from plog.errors import UnsupportedVersion
from plog.wire.api_keys import ApiKey
from plog.wire.messages import API_BY_KEY
from plog.wire.primitives import (
    Buffer,
    WireError,
    decode_varint,
    skip_counted_fields,
    skip_tagged_fields,
)
from plog.wire.schema import ApiMessage

_FIXED = struct.Struct(">hhih")  # api key, version, correlation id, length of the client id
_CORRELATION_ID = struct.Struct(">i")
_SIZE = struct.Struct(">i")
_MAX_TAGGED_FIELDS = 1_000
"""Of a request's header, none of which we know: far more than there will ever be."""


class RequestHeader(NamedTuple):
    """Who asks what. A version can be one we do not know: see `decode_request_header`."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None = None


class UnknownApiKey(UnsupportedVersion):
    """A request for an API we have never heard of; its header is all that can be read."""

    def __init__(self, header: RequestHeader) -> None:
        super().__init__(f"api key {header.api_key} is unknown")
        self.header = header


def decode_request_header(data: Buffer) -> tuple[RequestHeader, int]:
    """The header at the start of `data`, and where the body begins.

    Of a version beyond those we know only the header is meaningful, not the position: the caller
    compares it with what is served, and answers an ApiVersions request of any version.

    Raises WireError, or UnknownApiKey if not even the form of the header can be known.
    """
    try:
        api_key, version, correlation_id, length = _FIXED.unpack_from(data)
        client_id, position = None, _FIXED.size
        if length >= 0:
            position += length
            client_id = str(data[_FIXED.size : position], "utf-8")
            if position > len(data):
                raise WireError(f"a client id of {length} bytes ends beyond its frame")
        header = RequestHeader(api_key, version, correlation_id, client_id)
        api = API_BY_KEY.get(api_key)
        if api is None:
            raise UnknownApiKey(header)
        if api.request.flexible_from <= version <= api.request.max_version:
            position = _skip_tags(data, position)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise WireError(f"a request header cannot be read: {error}") from error
    return header, position


def _skip_tags(data: Buffer, position: int) -> int:
    count, position = decode_varint(data, position)
    if count > _MAX_TAGGED_FIELDS:
        raise WireError(f"a request header with {count} tagged fields")
    return skip_counted_fields(data, position, count)


def encode_response_header(api_key: int, version: int, correlation_id: int) -> bytes:
    """What stands before a response of this API and version."""
    return _CORRELATION_ID.pack(correlation_id) + response_tags(api_key, version)


def decode_response_header(data: Buffer, api_key: int, version: int) -> tuple[int, int]:
    """The correlation id at the start of `data`, and where the body begins. Raises WireError."""
    try:
        (correlation_id,) = _CORRELATION_ID.unpack_from(data)
        position = _CORRELATION_ID.size
        if response_tags(api_key, version):
            position = skip_tagged_fields(data, position)
    except (struct.error, IndexError) as error:
        raise WireError(f"a response header cannot be read: {error}") from error
    return correlation_id, position


def encode_request(header: RequestHeader, message: ApiMessage) -> bytes:
    """A request as it goes out, its size first."""
    version = header.api_version
    client_id = b"" if header.client_id is None else header.client_id.encode()
    length = -1 if header.client_id is None else len(client_id)
    fixed = _FIXED.pack(header.api_key, version, header.correlation_id, length)
    tags = b"\0" if version >= message.flexible_from else b""
    frame = b"".join((fixed, client_id, tags, message.encode(version)))
    return _SIZE.pack(len(frame)) + frame


def response_tags(api_key: int, version: int) -> bytes:
    """What follows the correlation id of a response: the place for no tags, or nothing."""
    if api_key == ApiKey.API_VERSIONS or version < API_BY_KEY[api_key].response.flexible_from:
        return b""
    return b"\0"
