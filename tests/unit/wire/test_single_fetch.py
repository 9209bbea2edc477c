"""plog/wire/single_fetch.py: the fast path agrees with the general code, or declines."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plog.types import ZERO_UUID
from plog.wire.api_keys import ApiKey
from plog.wire.header import RequestHeader, decode_request_header, encode_request
from plog.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from plog.wire.single_fetch import (
    FIRST_VERSION,
    LAST_VERSION,
    decode_single_fetch,
    encode_empty_response,
    encode_single_response,
    end_of_single_response,
)

TOPIC_ID = bytes(range(16))
VERSIONS = range(FIRST_VERSION, LAST_VERSION + 1)
SESSION_VERSIONS = range(7, LAST_VERSION + 1)
int8 = st.integers(-(2**7), 2**7 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
names = st.text(min_size=1, max_size=30)


def topic(version: int, *partitions: FetchPartition, name: str = "logs") -> FetchTopic:
    if version < 13:
        return FetchTopic(topic=name, partitions=list(partitions))
    return FetchTopic(topic_id=TOPIC_ID, partitions=list(partitions))


def partition(version: int, **fields: int) -> FetchPartition:
    epochs: dict[str, int] = {}
    if version >= 9:
        epochs["current_leader_epoch"] = 3
    if version >= 12:
        epochs["last_fetched_epoch"] = 2
    known = {"partition": 7, "fetch_offset": 1 << 40, "partition_max_bytes": 1 << 20}
    return FetchPartition(**(known | epochs | fields))


def request(version: int, *topics: FetchTopic) -> FetchRequest:
    message = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=50 << 20,
        isolation_level=1,
        topics=list(topics),
    )
    if version >= 7:
        message.session_id, message.session_epoch = 12345, 6
    return message


def usual(version: int) -> FetchRequest:
    return request(version, topic(version, partition(version)))


def frame(message: FetchRequest, version: int, client_id: str | None = "me") -> memoryview:
    header = RequestHeader(ApiKey.FETCH, version, 77, client_id)
    return memoryview(encode_request(header, message))[4:]


@settings(deadline=None)
@given(
    st.sampled_from(VERSIONS),
    names,
    st.one_of(st.none(), st.text(max_size=300)),
    st.tuples(int32, int32, int32, int8),
    st.tuples(int32, int32, int64, int32, int64, int32),
    st.text(max_size=40),
    st.booleans(),
)
def test_fast_path_decodes_request(
    version: int,
    name: str,
    client_id: str | None,
    limits: tuple[int, ...],
    numbers: tuple[int, ...],
    rack: str,
    is_whole: bool,
) -> None:
    index, epoch, offset, last_epoch, start, nbytes = numbers
    wanted = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=nbytes)
    message = request(version)
    message.max_wait_ms, message.min_bytes, message.max_bytes, message.isolation_level = limits
    if version >= 5:
        wanted.log_start_offset = start
    if version >= 9:
        wanted.current_leader_epoch = epoch
    if version >= 12:
        wanted.last_fetched_epoch = last_epoch
    if version < 7 or is_whole:
        message.topics = [topic(version, wanted, name=name)]
    if version >= 11:
        message.rack_id = rack
    expected = FetchRequest.decode(message.encode(version), version)
    single = decode_single_fetch(frame(message, version, client_id))
    assert single is not None
    assert single.header == RequestHeader(ApiKey.FETCH, version, 77, client_id)
    assert single.as_message() == expected


def test_fast_path_declines_long_names_with_compact_lengths() -> None:
    for length in (126, 127):
        message = usual(12)
        message.topics[0].topic = "n" * length
        single = decode_single_fetch(frame(message, 12))
        assert (single is None) == (length == 127)
    for version in range(11, LAST_VERSION + 1):
        message = usual(version)
        message.rack_id = "r" * 127
        assert (decode_single_fetch(frame(message, version)) is None) == (version >= 12)


def several_topics(version: int) -> FetchRequest:
    message = usual(version)
    message.topics *= 2
    return message


def from_replica(version: int) -> FetchRequest:
    message = usual(version)
    if version < 15:
        message.replica_id = 2
    else:
        message.replica_state = ReplicaState(replica_id=2)
    return message


def several_partitions(version: int) -> FetchRequest:
    return request(version, topic(version, partition(version), partition(version)))


def without_partitions(version: int) -> FetchRequest:
    return request(version, topic(version))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "make", [several_topics, from_replica, several_partitions, without_partitions]
)
def test_fast_path_declines_other_forms(make: object, version: int) -> None:
    assert callable(make)
    assert decode_single_fetch(frame(make(version), version)) is None


@pytest.mark.parametrize("version", SESSION_VERSIONS)
def test_fast_path_declines_forgotten_partitions(version: int) -> None:
    forgotten = ForgottenTopic(topic="logs", topic_id=TOPIC_ID, partitions=[1])
    for message in (usual(version), request(version)):
        assert decode_single_fetch(frame(message, version)) is not None
        message.forgotten_topics_data = [forgotten]
        assert decode_single_fetch(frame(message, version)) is None


def test_fast_path_declines_tagged_fields() -> None:
    message = usual(18)
    message.cluster_id = "mine"
    assert decode_single_fetch(frame(message, 18)) is None
    for fields in ({"high_watermark": 5}, {"replica_directory_id": TOPIC_ID}):
        message = usual(18)
        for name, value in fields.items():
            setattr(message.topics[0].partitions[0], name, value)
        assert decode_single_fetch(frame(message, 18)) is None


def test_fast_path_declines_empty_request_without_session() -> None:
    for version in range(FIRST_VERSION, 7):
        assert decode_single_fetch(frame(FetchRequest(), version)) is None


def test_fast_path_declines_other_versions() -> None:
    for version, other in ((FIRST_VERSION, FIRST_VERSION - 1), (LAST_VERSION, LAST_VERSION + 1)):
        data = bytearray(frame(usual(version), version))
        data[2:4] = other.to_bytes(2, "big")
        assert decode_single_fetch(memoryview(data)) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_fast_path_declines_truncated_request(version: int) -> None:
    for message in (usual(version), *([request(version)] if version >= 7 else [])):
        whole = frame(message, version)
        for end in range(len(whole)):
            assert decode_single_fetch(whole[:end]) is None
        assert decode_single_fetch(memoryview(bytes(whole) + b"x")) is None


@settings(deadline=None, max_examples=2000)
@given(st.sampled_from(VERSIONS), st.booleans(), st.data())
def test_fast_path_agrees_with_general_decoder_on_damaged_request(
    version: int, is_whole: bool, data: st.DataObject
) -> None:
    message = usual(version) if is_whole or version < 7 else request(version)
    if version >= 11:
        message.rack_id = "rück"
    damaged = bytearray(frame(message, version))
    place = data.draw(st.integers(2, len(damaged) - 1))
    damaged[place] = data.draw(st.integers(0, 255))
    single = decode_single_fetch(memoryview(damaged))
    if single is None:
        return
    header, position = decode_request_header(memoryview(damaged))
    decoded, size = FetchRequest.decode_prefix(memoryview(damaged)[position:], header.api_version)
    assert size == len(damaged) - position
    assert single.header == header
    assert single.as_message() == decoded


@settings(deadline=None)
@given(
    st.sampled_from(VERSIONS),
    st.one_of(names, st.text(min_size=120, max_size=300)),
    st.tuples(int32, int32, int32),
    st.tuples(int64, int64, int64),
    st.booleans(),
    st.binary(max_size=20_000),
)
def test_response_has_bytes_of_general_encoder(
    version: int,
    name: str,
    numbers: tuple[int, int, int],
    offsets: tuple[int, int, int],
    has_aborted: bool,
    records: bytes,
) -> None:
    throttle_ms, session_id, index = numbers
    high_watermark, last_stable_offset, log_start_offset = offsets
    data = PartitionData(
        partition_index=index,
        high_watermark=high_watermark,
        last_stable_offset=last_stable_offset,
        log_start_offset=log_start_offset,
        aborted_transactions=[] if has_aborted else None,
        records=records,
    )
    topics = [FetchableTopicResponse(topic=name, topic_id=TOPIC_ID, partitions=[data])]
    response = FetchResponse(throttle_time_ms=throttle_ms, responses=topics)
    if version >= 7:
        response.session_id = session_id
    encoded = encode_single_response(
        version,
        throttle_ms,
        session_id,
        name,
        TOPIC_ID,
        index,
        offsets,
        has_aborted,
        len(records),
    )
    assert encoded + records + end_of_single_response(version) == response.encode(version)


@pytest.mark.parametrize("version", VERSIONS)
def test_empty_response_has_bytes_of_general_encoder(version: int) -> None:
    response = FetchResponse(throttle_time_ms=4, session_id=1 << 30 if version >= 7 else 0)
    assert encode_empty_response(version, 4, 1 << 30) == response.encode(version)


def test_topic_id_is_zero_in_versions_with_names() -> None:
    single = decode_single_fetch(frame(usual(11), 11))
    assert single is not None
    assert (single.topic, single.topic_id) == ("logs", ZERO_UUID)
    single = decode_single_fetch(frame(usual(13), 13))
    assert single is not None
    assert (single.topic, single.topic_id) == ("", TOPIC_ID)
