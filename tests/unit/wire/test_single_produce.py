"""plog/wire/single_produce.py: the fast path agrees with the general decoder, or declines."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plog.types import ZERO_UUID
from plog.wire.api_keys import ApiKey
from plog.wire.frames import frame_response
from plog.wire.header import RequestHeader, decode_request_header, encode_request
from plog.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from plog.wire.single_produce import (
    FIRST_VERSION,
    LAST_VERSION,
    decode_single_produce,
)

TOPIC_ID = bytes(range(16))
VERSIONS = range(FIRST_VERSION, LAST_VERSION + 1)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)


def request(topic: str = "logs", records: bytes = b"batch", partitions: int = 1) -> ProduceRequest:
    data = [PartitionProduceData(index=7, records=memoryview(records)) for _ in range(partitions)]
    topics = [TopicProduceData(name=topic, topic_id=TOPIC_ID, partition_data=data)]
    return ProduceRequest(acks=-1, timeout_ms=1500, topic_data=topics)


def frame(message: ProduceRequest, version: int, client_id: str | None = "me") -> memoryview:
    header = RequestHeader(ApiKey.PRODUCE, version, 77, client_id)
    return memoryview(encode_request(header, message))[4:]


@settings(deadline=None)
@given(
    st.sampled_from(VERSIONS),
    st.text(min_size=1, max_size=30),
    st.one_of(st.none(), st.text(max_size=200)),
    st.binary(min_size=1, max_size=20_000),
)
def test_fast_path_decodes_request(
    version: int, topic: str, client_id: str | None, records: bytes
) -> None:
    single = decode_single_produce(frame(request(topic, records), version, client_id))
    assert single is not None
    assert single.header == RequestHeader(ApiKey.PRODUCE, version, 77, client_id)
    assert (single.acks, single.timeout_ms, single.partition) == (-1, 1500, 7)
    assert single.records == records
    assert single.topic == ("" if version >= 13 else topic)
    assert single.topic_id == (TOPIC_ID if version >= 13 else ZERO_UUID)


def several_topics() -> ProduceRequest:
    message = request()
    message.topic_data *= 2
    return message


def with_transaction() -> ProduceRequest:
    message = request()
    message.transactional_id = ""
    return message


def without_records() -> ProduceRequest:
    message = request()
    message.topic_data[0].partition_data[0].records = None
    return message


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "message",
    [
        request(partitions=2),
        request(partitions=0),
        request(records=b""),
        several_topics(),
        with_transaction(),
        without_records(),
        ProduceRequest(),
    ],
)
def test_fast_path_declines_other_forms(message: ProduceRequest, version: int) -> None:
    assert decode_single_produce(frame(message, version)) is None


def test_fast_path_declines_other_versions() -> None:
    for version in (FIRST_VERSION - 1, LAST_VERSION):
        data = bytearray(frame(request(), version))
        if version == LAST_VERSION:
            data[2:4] = (LAST_VERSION + 1).to_bytes(2, "big")
        assert decode_single_produce(memoryview(data)) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_fast_path_declines_truncated_request(version: int) -> None:
    whole = frame(request(), version)
    for end in range(len(whole)):
        assert decode_single_produce(whole[:end]) is None
    assert decode_single_produce(memoryview(bytes(whole) + b"x")) is None


@settings(deadline=None, max_examples=1000)
@given(st.sampled_from(VERSIONS), st.data())
def test_fast_path_agrees_with_general_decoder_on_damaged_request(
    version: int, data: st.DataObject
) -> None:
    damaged = bytearray(frame(request(), version))
    place = data.draw(st.integers(2, len(damaged) - 1))
    damaged[place] = data.draw(st.integers(0, 255))
    single = decode_single_produce(memoryview(damaged))
    if single is None:
        return
    header, position = decode_request_header(memoryview(damaged))
    message, size = ProduceRequest.decode_prefix(memoryview(damaged)[position:], header.api_version)
    assert size == len(damaged) - position
    assert single.header == header
    assert single.as_message() == message


@settings(deadline=None)
@given(st.sampled_from(VERSIONS), int32, int64, int64, int64)
def test_fast_path_response_has_bytes_of_general_encoder(
    version: int, correlation_id: int, base_offset: int, append_time: int, log_start: int
) -> None:
    header = RequestHeader(ApiKey.PRODUCE, version, correlation_id, "me")
    produce = decode_single_produce(memoryview(encode_request(header, request()))[4:])
    assert produce is not None
    partition = PartitionProduceResponse(
        index=7,
        base_offset=base_offset,
        log_append_time_ms=append_time,
        log_start_offset=log_start,
    )
    topic = TopicProduceResponse(name="logs", topic_id=TOPIC_ID, partition_responses=[partition])
    response = ProduceResponse(responses=[topic])
    expected = frame_response(ApiKey.PRODUCE, version, correlation_id, response)
    assert [produce.frame_response(base_offset, append_time, log_start)] == expected
