"""plog/wire/schema.py: messages and their versions."""

from __future__ import annotations

import pytest

from plog.errors import UnsupportedVersion
from plog.wire.api_keys import ApiKey
from plog.wire.messages.api_versions import ApiVersionsResponse
from plog.wire.schema import ApiMessage, Message, WireError, field, int32


class Classic(ApiMessage, api_key=17, versions="0-1"):
    """A message without flexible versions."""

    number: int32 = field()


def test_message_has_its_declared_versions() -> None:
    assert ApiVersionsResponse.api_key == ApiKey.API_VERSIONS
    assert (ApiVersionsResponse.min_version, ApiVersionsResponse.max_version) == (0, 4)
    assert ApiVersionsResponse.flexible_from == 3
    assert Classic.flexible_from > Classic.max_version
    assert Classic(number=1).encode(1) == bytes.fromhex("00000001")


@pytest.mark.parametrize("version", [-1, 5])
def test_unknown_version_is_rejected(version: int) -> None:
    with pytest.raises(UnsupportedVersion, match=f"supports versions 0 to 4, not {version}"):
        ApiVersionsResponse.decode(bytes(100), version)
    with pytest.raises(UnsupportedVersion, match=f"supports versions 0 to 4, not {version}"):
        ApiVersionsResponse().encode(version)


def test_bytes_after_message_are_ignored() -> None:
    data = Classic(number=1).encode(0)
    assert Classic.decode(data + b"\xff", 0) == Classic(number=1)
    assert Classic.decode_prefix(data + b"\xff", 0) == (Classic(number=1), 4)


def test_released_view_raises_value_error() -> None:
    view = memoryview(Classic(number=1).encode(0))
    view.release()
    with pytest.raises(ValueError, match="released"):
        Classic.decode(view, 0)


def test_error_names_message_and_version() -> None:
    with pytest.raises(WireError, match="cannot decode Classic version 1"):
        Classic.decode(b"", 1)


def test_caches_of_generated_code_are_per_message() -> None:
    class One(Message, versions="0"):
        number: int32 = field()

    class Other(Message, versions="0"):
        text: str = field()

    assert One(number=1).encode(0) == bytes.fromhex("00000001")
    assert Other(text="x").encode(0) == bytes.fromhex("000178")
