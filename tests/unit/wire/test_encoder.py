"""plog/wire/encoder.py: fields that a version lacks, and the parts of a message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import pytest

from plog.errors import UnsupportedVersion
from plog.wire.internal.metadata_records import PartitionChangeRecord
from plog.wire.messages.create_topics import CreateTopicsRequest
from plog.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    ForgottenTopic,
    LeaderIdAndEpoch,
    PartitionData,
    ReplicaState,
)
from plog.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from plog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from plog.wire.schema import Message, Part, WireError, field


@dataclass(frozen=True)
class Region:
    """A stand-in for a slice of a file."""

    nbytes: int


class NewerOnly(Message, versions="0-1", flexible="1+"):
    """A message with a nullable struct that is not null by default."""

    state: ReplicaState | None = field("1+")


def _response(*records: Part | None) -> FetchResponse:
    partitions = [PartitionData(partition_index=i, records=x) for i, x in enumerate(records)]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])


def test_value_is_rejected_in_version_without_field() -> None:
    request = FetchRequest(forgotten_topics_data=[ForgottenTopic(topic="t", partitions=[0])])
    with pytest.raises(UnsupportedVersion, match=r"FetchRequest\.forgotten_topics_data .* 6 "):
        request.encode(6)
    assert FetchRequest.decode(request.encode(7), 7) == request


def test_tagged_struct_is_rejected_in_version_without_field() -> None:
    with pytest.raises(UnsupportedVersion, match="replica_state"):
        FetchRequest(replica_state=ReplicaState(replica_id=1)).encode(14)
    FetchRequest(replica_state=ReplicaState()).encode(14)


def test_null_that_is_not_default_is_rejected_in_version_without_field() -> None:
    assert NewerOnly().encode(0) == b""
    for refused in (NewerOnly(state=None), NewerOnly(state=ReplicaState(replica_epoch=1))):
        with pytest.raises(UnsupportedVersion, match="state"):
            refused.encode(0)
        assert NewerOnly.decode(refused.encode(1), 1) == refused


def test_ignorable_value_is_dropped_in_version_without_field() -> None:
    request = FetchRequest(session_id=7, rack_id="r1")
    assert FetchRequest.decode(request.encode(6), 6) == FetchRequest()
    assert FetchRequest.decode(request.encode(7), 7) == FetchRequest(session_id=7)


def test_null_is_rejected_in_version_where_field_is_not_nullable() -> None:
    response = MetadataResponse(topics=[MetadataResponseTopic(name=None)])
    assert MetadataResponse.decode(response.encode(12), 12).topics[0].name is None
    with pytest.raises(WireError, match="cannot encode MetadataResponse version 11"):
        response.encode(11)
    with pytest.raises(WireError, match="cannot encode MetadataRequest version 0"):
        MetadataRequest(topics=None).encode(0)


@pytest.mark.parametrize("version", [4, 12])
def test_string_above_maximum_length_is_rejected(version: int) -> None:
    def request(length: int) -> MetadataRequest:
        return MetadataRequest(topics=[MetadataRequestTopic(name="x" * length)])

    assert MetadataRequest.decode(request(32767).encode(version), version) == request(32767)
    with pytest.raises(WireError):
        request(32768).encode(version)


def test_number_out_of_range_is_rejected() -> None:
    with pytest.raises(WireError, match="cannot encode"):
        CreateTopicsRequest(timeout_ms=1 << 31).encode(2)


def test_text_with_surrogates_is_rejected() -> None:
    with pytest.raises(WireError, match="surrogates"):
        MetadataRequest(topics=[MetadataRequestTopic(name="\ud800")]).encode(12)


def test_tagged_fields_with_defaults_take_one_byte() -> None:
    at_default = PartitionData(current_leader=LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1))
    partitions = [at_default]
    topics = [FetchableTopicResponse(topic="t", partitions=partitions)]
    # Tags of the partition, the topic and the message.
    assert FetchResponse(responses=topics).encode(12).endswith(bytes.fromhex("00 00 00 00"))


def test_tagged_fields_are_encoded_in_tag_order() -> None:
    directory = bytes(range(16))
    record = PartitionChangeRecord(
        directories=[directory], eligible_leader_replicas=[], last_known_elr=[1], leader=2
    )
    head = "ffffffff" + "00" * 16
    tags = "040104 000000020601 010705 02 000000010811 02" + directory.hex()
    assert record.encode(2).hex() == (head + tags).replace(" ", "")


def test_records_are_not_copied() -> None:
    region, view = Region(1000), memoryview(b"batch")
    parts = _response(region, view, b"bytes", None).encode_parts(4)
    assert [type(part) for part in parts] == [bytes, Region, bytes, memoryview, bytes]
    assert parts[1] is region
    assert parts[3] is view
    assert isinstance(parts[0], bytes)
    assert parts[0].endswith((1000).to_bytes(4, "big"))
    assert isinstance(parts[4], bytes)
    assert b"bytes" in parts[4]
    assert parts[4].endswith((-1).to_bytes(4, "big", signed=True))


@pytest.mark.parametrize("version", [4, 12])
def test_encode_joins_parts(version: int) -> None:
    response = _response(memoryview(b"one"), b"two", memoryview(b""), None)
    parts = response.encode_parts(version)
    assert b"".join(cast(list[bytes], parts)) == response.encode(version)


def test_message_with_passthrough_records_is_not_encoded_to_bytes() -> None:
    with pytest.raises(WireError, match="cannot encode FetchResponse: not all parts are bytes"):
        _response(Region(5)).encode(12)


def test_produce_request_accepts_view() -> None:
    data = [PartitionProduceData(index=1, records=memoryview(b"batch"))]
    request = ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=data)])
    assert ProduceRequest.decode(request.encode(9), 9) == request
