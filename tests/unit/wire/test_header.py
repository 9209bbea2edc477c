"""plog/wire/header.py: request and response headers, also of unknown requests."""

from __future__ import annotations

import pytest

from plog.errors import UnsupportedVersion
from plog.wire.api_keys import ApiKey
from plog.wire.header import (
    RequestHeader,
    UnknownApiKey,
    decode_request_header,
    decode_response_header,
    encode_request,
    encode_response_header,
)
from plog.wire.messages import API_BY_KEY, APIS, Api
from plog.wire.messages.metadata import MetadataRequest
from plog.wire.schema import WireError

# (API, version) on both sides of each border between header versions.
BORDERS = [
    pytest.param(api, version, id=f"{api.request.__name__}-v{version}")
    for api in APIS
    for version in (api.request.flexible_from - 1, api.request.flexible_from)
    if api.request.min_version <= version <= api.request.max_version
]


@pytest.mark.parametrize(("api", "version"), BORDERS)
def test_request_header_survives_round_trip(api: Api, version: int) -> None:
    header = RequestHeader(api.request.api_key, version, 77, "client-é")
    frame = encode_request(header, api.request())
    size, data = frame[:4], memoryview(frame)[4:]
    assert int.from_bytes(size, "big") == len(data)
    decoded, position = decode_request_header(data)
    assert decoded == header
    assert api.request.decode(data[position:], version) == api.request()


def test_client_id_may_be_null() -> None:
    header = RequestHeader(ApiKey.METADATA, 9, 1, None)
    frame = encode_request(header, MetadataRequest())
    assert frame[4:15].hex() == "0003000900000001ffff00"
    assert decode_request_header(frame[4:]) == (header, 11)
    assert decode_request_header(bytes.fromhex("0003 0001 00000001 0000"))[0].client_id == ""


def test_tagged_fields_of_request_header_are_skipped() -> None:
    data = bytes.fromhex("0003 000c 00000001 0001 63 01 05 02 aabb 00")
    assert decode_request_header(data) == (RequestHeader(3, 12, 1, "c"), len(data) - 1)


def test_header_of_api_versions_request_of_any_version_is_decoded() -> None:
    # KIP-511: newer clients use a version that an older broker does not know.
    data = bytes.fromhex("0012 0063 0000002a 0001 63") + b"whatever version 99 has here"
    header, _ = decode_request_header(data)
    assert header == RequestHeader(ApiKey.API_VERSIONS, 99, 42, "c")
    assert encode_response_header(ApiKey.API_VERSIONS, 0, 42) == bytes.fromhex("0000002a")


def test_header_of_unknown_version_is_decoded() -> None:
    header, _ = decode_request_header(bytes.fromhex("0003 7fff 0000002a 0001 63 ff"))
    assert header == RequestHeader(ApiKey.METADATA, 32767, 42, "c")
    header, _ = decode_request_header(bytes.fromhex("0003 ffff 0000002a 0001 63"))
    assert header.api_version == -1


def test_error_for_unknown_api_key_contains_header() -> None:
    with pytest.raises(UnknownApiKey, match="api key 999 is unknown") as caught:
        decode_request_header(bytes.fromhex("03e7 0001 0000002a 0001 63 ff"))
    assert caught.value.header == RequestHeader(999, 1, 42, "c")
    assert isinstance(caught.value, UnsupportedVersion)


def test_truncated_header_is_rejected() -> None:
    data = bytes.fromhex("0003 000c 00000001 0003 616263 01 05 02 aabb")
    for length in range(len(data)):
        with pytest.raises(WireError):
            decode_request_header(data[:length])


def test_header_with_too_many_tagged_fields_is_rejected() -> None:
    data = bytes.fromhex("0003 000c 00000001 ffff ffffff7f") + bytes(100)
    with pytest.raises(WireError, match="268435455 tagged fields"):
        decode_request_header(data)


def test_bytes_of_another_protocol_are_rejected() -> None:
    with pytest.raises(UnknownApiKey):  # "GET / HTTP/1.1" without its first four bytes, the size.
        decode_request_header(b"/ HT\0\0\0\0\0\0")
    with pytest.raises(WireError):
        decode_request_header(b"/ HTTP/1.1\r\n")
    with pytest.raises(WireError):
        decode_request_header(bytes.fromhex("0003 0001 00000001 0002 c328"))


@pytest.mark.parametrize(("api", "version"), BORDERS)
def test_response_header_survives_round_trip(api: Api, version: int) -> None:
    key = api.response.api_key
    header = encode_response_header(key, version, 42)
    assert decode_response_header(header + b"body", key, version) == (42, len(header))
    flexible = version >= api.response.flexible_from and key != ApiKey.API_VERSIONS
    assert len(header) == (5 if flexible else 4)


def test_tagged_fields_of_response_header_are_skipped() -> None:
    data = bytes.fromhex("0000002a 01 05 02 aabb")
    assert decode_response_header(data, ApiKey.METADATA, 9) == (42, len(data))
    for length in range(len(data)):
        with pytest.raises(WireError):
            decode_response_header(data[:length], ApiKey.METADATA, 9)


def test_api_versions_response_header_never_has_tagged_fields() -> None:
    response = API_BY_KEY[ApiKey.API_VERSIONS].response
    for version in range(response.min_version, response.max_version + 1):
        assert encode_response_header(ApiKey.API_VERSIONS, version, 1) == bytes.fromhex("00000001")
