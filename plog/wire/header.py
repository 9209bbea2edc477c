"""Headers of requests and responses, and complete request frames.

    request   size int32 | api key int16 | version int16 | correlation id int32 | client id | tags?
    response  size int32 | correlation id int32 | tags?

A header has tags if its message is flexible (KIP-482), except in ApiVersions responses. The
client id has a two-byte length in every version. The functions work on frames without the size
field, except `encode_request`, whose result includes it.
"""

from __future__ import annotations

import struct
from functools import cache
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
"""Limit for a request header. Kafka does not define any, so clients send few or none."""


class RequestHeader(NamedTuple):
    """The header of a request; see `decode_request_header` for unknown versions."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None = None


class UnknownApiKey(UnsupportedVersion):
    """A request has an unknown API key; only the fields of `header` could be decoded."""

    def __init__(self, header: RequestHeader) -> None:
        super().__init__(f"api key {header.api_key} is unknown")
        self.header = header


def decode_request_header(data: Buffer) -> tuple[RequestHeader, int]:
    """Return the header at the start of `data`, and the position of the body.

    For an unknown version, the header is valid, but the position is not. The caller checks whether
    the broker serves the version, and responds to ApiVersions requests in any version.

    Raises WireError, or UnknownApiKey for an unknown API key.
    """
    try:
        api_key, version, correlation_id, length = _FIXED.unpack_from(data)
        client_id, position = None, _FIXED.size
        if length >= 0:
            position += length
            client_id = str(data[_FIXED.size : position], "utf-8")
            # Python ends the slice above at the end of the data, without an error.
            if position > len(data):
                raise WireError(f"a {length}-byte client id extends beyond its frame")
        header = RequestHeader(api_key, version, correlation_id, client_id)
        api = API_BY_KEY.get(api_key)
        # Only the declaration of an API determines whether tags follow.
        if api is None:
            raise UnknownApiKey(header)
        # Versions above the last known one may have another header, so their tags are not skipped.
        if api.request.flexible_from <= version <= api.request.max_version:
            position = _skip_tags(data, position)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise WireError(f"cannot decode a request header: {error}") from error
    return header, position


def _skip_tags(data: Buffer, position: int) -> int:
    count, position = decode_varint(data, position)
    if count > _MAX_TAGGED_FIELDS:
        raise WireError(f"a request header has {count} tagged fields (limit: {_MAX_TAGGED_FIELDS})")
    return skip_counted_fields(data, position, count)


def encode_response_header(api_key: int, version: int, correlation_id: int) -> bytes:
    """Return the header of a response for this API and version."""
    return _CORRELATION_ID.pack(correlation_id) + response_tags(api_key, version)


def decode_response_header(data: Buffer, api_key: int, version: int) -> tuple[int, int]:
    """Return the correlation id at the start of `data`, and the position of the body.

    Raises WireError.
    """
    try:
        (correlation_id,) = _CORRELATION_ID.unpack_from(data)
        position = _CORRELATION_ID.size
        if response_tags(api_key, version):
            position = skip_tagged_fields(data, position)
    except (struct.error, IndexError) as error:
        raise WireError(f"cannot decode a response header: {error}") from error
    return correlation_id, position


def encode_request(header: RequestHeader, message: ApiMessage) -> bytes:
    """Return a request frame, including its size."""
    version = header.api_version
    client_id = b"" if header.client_id is None else header.client_id.encode()
    length = -1 if header.client_id is None else len(client_id)
    fixed = _FIXED.pack(header.api_key, version, header.correlation_id, length)
    tags = b"\0" if version >= message.flexible_from else b""
    frame = b"".join((fixed, client_id, tags, message.encode(version)))
    return _SIZE.pack(len(frame)) + frame


# Cached, because every response needs the bytes (1 % of the instructions of a small Produce), and
# only a few hundred pairs of arguments exist.
@cache
def response_tags(api_key: int, version: int) -> bytes:
    """Return the bytes after the correlation id in a response: an empty tag section, or nothing."""
    # A client that reads an ApiVersions response does not know the broker's versions yet (KIP-511).
    if api_key == ApiKey.API_VERSIONS or version < API_BY_KEY[api_key].response.flexible_from:
        return b""
    return b"\0"
