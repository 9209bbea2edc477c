"""What a declared message knows about its versions."""

from __future__ import annotations

import pytest

from plog.errors import UnsupportedVersion
from plog.wire.api_keys import ApiKey
from plog.wire.messages.api_versions import ApiVersionsResponse
from plog.wire.schema import ApiMessage, Message, WireError, field, int32


class Classic(ApiMessage, api_key=17, versions="0-1"):
    """A message that never became flexible."""

    number: int32 = field()


def test_a_message_tells_its_versions() -> None:
    assert ApiVersionsResponse.api_key == ApiKey.API_VERSIONS
    assert (ApiVersionsResponse.min_version, ApiVersionsResponse.max_version) == (0, 4)
    assert ApiVersionsResponse.flexible_from == 3
    assert Classic.flexible_from > Classic.max_version
    assert Classic(number=1).encode(1) == bytes.fromhex("00000001")


@pytest.mark.parametrize("version", [-1, 5])
def test_a_version_nobody_knows_is_refused(version: int) -> None:
    with pytest.raises(UnsupportedVersion, match=f"has versions 0 to 4, not {version}"):
        ApiVersionsResponse.decode(bytes(100), version)
    with pytest.raises(UnsupportedVersion, match=f"has versions 0 to 4, not {version}"):
        ApiVersionsResponse().encode(version)


def test_what_follows_a_message_is_not_looked_at() -> None:
    data = Classic(number=1).encode(0)
    assert Classic.decode(data + b"\xff", 0) == Classic(number=1)
    assert Classic.decode_prefix(data + b"\xff", 0) == (Classic(number=1), 4)


def test_a_released_view_is_a_bug_of_the_caller_not_of_the_peer() -> None:
    view = memoryview(Classic(number=1).encode(0))
    view.release()
    with pytest.raises(ValueError, match="released"):
        Classic.decode(view, 0)


def test_an_error_names_the_message_and_the_version() -> None:
    with pytest.raises(WireError, match="Classic version 1 cannot be read"):
        Classic.decode(b"", 1)


def test_the_caches_of_compiled_code_belong_to_one_message() -> None:
    class One(Message, versions="0"):
        number: int32 = field()

    class Other(Message, versions="0"):
        text: str = field()

    assert One(number=1).encode(0) == bytes.fromhex("00000001")
    assert Other(text="x").encode(0) == bytes.fromhex("000178")
