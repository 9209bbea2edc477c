"""The version of a request that both sides support."""

from __future__ import annotations

import pytest

from plog.client.network.api_versions import common_version, ranges_of
from plog.errors import UnsupportedVersion
from plog.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from plog.wire.messages.fetch import FetchRequest
from plog.wire.messages.metadata import MetadataRequest
from plog.wire.messages.offset_commit import OffsetCommitRequest
from plog.wire.messages.offset_fetch import OffsetFetchRequest
from plog.wire.messages.produce import ProduceRequest
from plog.wire.schema import ApiMessage

ADDRESS = "b:9092"


def test_common_version_is_the_highest_supported_by_both() -> None:
    key = MetadataRequest.api_key
    assert common_version(MetadataRequest, {key: (0, 9)}, ADDRESS) == 9
    assert common_version(MetadataRequest(), {key: (0, 99)}, ADDRESS) == MetadataRequest.max_version


@pytest.mark.parametrize(
    ("request_type", "highest"),
    [(ProduceRequest, 12), (FetchRequest, 12), (OffsetCommitRequest, 9), (OffsetFetchRequest, 9)],
)
def test_version_with_topic_names_is_preferred(
    request_type: type[ApiMessage], highest: int
) -> None:
    assert request_type.max_version > highest
    assert common_version(request_type, {request_type.api_key: (0, 99)}, ADDRESS) == highest


def test_unsupported_version_names_both_ranges() -> None:
    with pytest.raises(UnsupportedVersion, match=r"b:9092 supports only versions 0 to 3; .* 4"):
        common_version(FetchRequest, {FetchRequest.api_key: (0, 3)}, ADDRESS)
    with pytest.raises(UnsupportedVersion, match="only versions 20 to 21"):
        common_version(FetchRequest, {FetchRequest.api_key: (20, 21)}, ADDRESS)
    with pytest.raises(UnsupportedVersion, match=r"METADATA: .* supports no version"):
        common_version(MetadataRequest, {}, ADDRESS)


def test_ranges_come_from_the_api_versions_response() -> None:
    answer = ApiVersionsResponse(api_keys=[ApiVersion(api_key=3, min_version=1, max_version=9)])
    assert ranges_of(answer) == {3: (1, 9)}
