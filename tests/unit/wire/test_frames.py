"""plog/wire/frames.py: response frames and their parts."""

from __future__ import annotations

from dataclasses import dataclass

from plog.wire.api_keys import ApiKey
from plog.wire.frames import frame_response
from plog.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from plog.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from plog.wire.schema import ApiMessage, Records, field


@dataclass(frozen=True)
class Region:
    """A stand-in for a slice of a file."""

    nbytes: int


class Empty(ApiMessage, api_key=ApiKey.METADATA, versions="0"):
    """A response without fields."""


class OnlyRecords(ApiMessage, api_key=ApiKey.METADATA, versions="0"):
    """A message that starts with records."""

    records: Records | None = field()


def test_response_without_records_is_one_part() -> None:
    response = ApiVersionsResponse(
        error_code=35, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)]
    )
    (frame,) = frame_response(ApiKey.API_VERSIONS, 0, 7, response)
    assert isinstance(frame, bytes)
    assert frame == bytes.fromhex(
        "00000010"  # size
        "00000007"  # correlation id
        "0023"  # UNSUPPORTED_VERSION
        "00000001 0012 0000 0004"  # one API
    )


def test_frame_size_includes_passthrough_records() -> None:
    partitions = [
        PartitionData(partition_index=0, records=Region(1 << 20)),
        PartitionData(partition_index=1, records=memoryview(b"batch")),
    ]
    topics = [FetchableTopicResponse(topic="t", partitions=partitions)]
    parts = frame_response(ApiKey.FETCH, 12, 7, FetchResponse(responses=topics))
    head, region, between, view, tail = parts
    assert isinstance(head, bytes)
    assert isinstance(between, bytes)
    assert isinstance(tail, bytes)
    assert region is partitions[0].records
    assert view is partitions[1].records
    size = len(head) + (1 << 20) + len(between) + len(b"batch") + len(tail)
    assert int.from_bytes(head[:4], "big") == size - 4
    assert head[4:9] == bytes.fromhex("00000007 00")


def test_first_part_is_bytes_when_message_is_empty_or_starts_with_records() -> None:
    assert frame_response(ApiKey.METADATA, 0, 7, Empty()) == [bytes.fromhex("00000004 00000007")]
    region = Region(3)
    parts = frame_response(ApiKey.METADATA, 0, 7, OnlyRecords(records=region))
    assert parts == [bytes.fromhex("0000000b 00000007 00000003"), region]
