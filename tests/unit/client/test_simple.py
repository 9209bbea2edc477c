"""SimpleClient against a scripted broker: requests, versions and responses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from plog.client.simple import EARLIEST, LATEST, SimpleClient
from plog.errors import (
    InvalidTopicException,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from plog.records.batch import Compression, CorruptBatch, parse_header
from plog.records.builder import build_batch
from plog.records.codec import Record
from plog.records.reader import iter_records
from plog.wire.api_keys import ApiKey
from plog.wire.messages import create_topics, fetch, list_offsets, metadata, produce
from plog.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from plog.wire.schema import ApiMessage, WireError
from tests.unit.client.scripted_broker import ScriptedBroker, Step, serve_versions


def _answer(message: ApiMessage) -> Step:
    return lambda _: message


@contextmanager
def _client(steps: Sequence[Step]) -> Iterator[SimpleClient]:
    with ScriptedBroker(steps) as broker, SimpleClient("127.0.0.1", broker.port) as client:
        yield client


def _produced(**fields: object) -> produce.ProduceResponse:
    partition = produce.PartitionProduceResponse(**fields)  # type: ignore[arg-type]
    topic = produce.TopicProduceResponse(name="t", partition_responses=[partition])
    return produce.ProduceResponse(responses=[topic])


def _fetched(error_code: int = 0, records: bytes | None = None) -> fetch.FetchResponse:
    partition = fetch.PartitionData(error_code=error_code, records=records)
    topic = fetch.FetchableTopicResponse(topic="t", partitions=[partition])
    return fetch.FetchResponse(responses=[topic])


def _offsets(error_code: int = 0, offset: int = -1) -> list_offsets.ListOffsetsResponse:
    partition = list_offsets.ListOffsetsPartitionResponse(error_code=error_code, offset=offset)
    topic = list_offsets.ListOffsetsTopicResponse(name="t", partitions=[partition])
    return list_offsets.ListOffsetsResponse(topics=[topic])


def test_api_versions_are_requested_once_in_version_0() -> None:
    steps = [serve_versions(), _answer(_offsets(offset=5)), _answer(_offsets(offset=6))]
    with ScriptedBroker(steps) as broker, SimpleClient("127.0.0.1", broker.port) as client:
        assert client.list_offset("t", 0) == 5
        assert client.list_offset("t", 0) == 6
    headers = [header for header, _ in broker.requests]
    assert [header.api_key for header in headers] == [18, 2, 2]
    assert [header.correlation_id for header in headers] == [1, 2, 3]
    assert headers[0].api_version == 0
    assert {header.client_id for header in headers} == {"plog-simple"}


def test_api_versions_returns_ranges_by_key() -> None:
    steps = [serve_versions(FETCH=11)]
    with ScriptedBroker(steps) as broker, SimpleClient("127.0.0.1", broker.port) as client:
        assert client.api_versions()[ApiKey.FETCH] == (0, 11)


@pytest.mark.parametrize(("served", "used"), [(5, 5), (7, 7), (12, 12), (13, 12), (99, 12)])
def test_fetch_uses_highest_common_version_with_topic_names(served: int, used: int) -> None:
    steps = [serve_versions(FETCH=served), _answer(_fetched())]
    with ScriptedBroker(steps) as broker, SimpleClient("127.0.0.1", broker.port) as client:
        assert client.fetch("t", 0, 0) == []
    assert broker.requests[1][0].api_version == used


def test_error_names_both_ranges_when_versions_do_not_overlap() -> None:
    steps = [serve_versions(FETCH=3)]
    with (
        _client(steps) as client,
        pytest.raises(UnsupportedVersion, match=r"FETCH: .* 0 to 3; .* 4 to"),
    ):
        client.fetch("t", 0, 0)


def test_missing_api_raises_unsupported_version() -> None:
    versions = [ApiVersion(api_key=ApiKey.FETCH, min_version=4, max_version=12)]
    steps = [_answer(ApiVersionsResponse(api_keys=versions))]
    with _client(steps) as client, pytest.raises(UnsupportedVersion, match="METADATA"):
        client.metadata()


def test_metadata_requests_some_topics_or_all() -> None:
    topics = [metadata.MetadataResponseTopic(name="t")]
    response = metadata.MetadataResponse(topics=topics)
    steps = [serve_versions(), _answer(response), _answer(response)]
    with ScriptedBroker(steps) as broker, SimpleClient("127.0.0.1", broker.port) as client:
        assert client.metadata(["t"]).topics[0].name == "t"
        client.metadata()
    some, every = (request for _, request in broker.requests[1:])
    assert isinstance(some, metadata.MetadataRequest)
    assert some.topics is not None
    assert [topic.name for topic in some.topics] == ["t"]
    assert isinstance(every, metadata.MetadataRequest)
    assert every.topics is None


def test_metadata_raises_error_of_topic() -> None:
    topics = [metadata.MetadataResponseTopic(name="t", error_code=3)]
    steps = [serve_versions(), _answer(metadata.MetadataResponse(topics=topics))]
    with _client(steps) as client, pytest.raises(UnknownTopicOrPartition, match="topic t"):
        client.metadata(["t"])


def test_create_topic_uses_default_replication_factor() -> None:
    def created(error_code: int, message: str | None = None) -> Step:
        result = create_topics.CreatableTopicResult(
            name="t", error_code=error_code, error_message=message
        )
        return _answer(create_topics.CreateTopicsResponse(topics=[result]))

    steps = [serve_versions(), created(0), created(36), created(17, "no blanks, please")]
    with ScriptedBroker(steps) as broker, SimpleClient("127.0.0.1", broker.port) as client:
        client.create_topic("t", 3)
        with pytest.raises(TopicAlreadyExists, match="topic t"):
            client.create_topic("t")
        with pytest.raises(InvalidTopicException, match="no blanks"):
            client.create_topic("a b")
    _, request = broker.requests[1]
    assert isinstance(request, create_topics.CreateTopicsRequest)
    assert request.topics == [
        create_topics.CreatableTopic(name="t", num_partitions=3, replication_factor=-1)
    ]


def test_records_are_produced_as_one_batch() -> None:
    records = [Record(99, 5, b"k", b"v", [("h", None)]), Record(value=b"no time")]
    steps = [serve_versions(), _answer(_produced(base_offset=41))]
    with ScriptedBroker(steps) as broker, SimpleClient("127.0.0.1", broker.port) as client:
        assert client.produce("t", 2, records, 1, 777, compression=Compression.LZ4) == 41
    _, request = broker.requests[1]
    assert isinstance(request, produce.ProduceRequest)
    assert (request.acks, request.timeout_ms) == (1, 777)
    data = request.topic_data[0].partition_data[0]
    assert (request.topic_data[0].name, data.index) == ("t", 2)
    assert isinstance(data.records, memoryview)
    assert parse_header(data.records).compression is Compression.LZ4
    first, second = iter_records(data.records)
    assert first == Record(0, 5, b"k", b"v", (("h", None),))
    assert second.offset == 1
    assert second.timestamp > 1_700_000_000_000


def test_produce_raises_error_of_broker() -> None:
    steps = [
        serve_versions(),
        _answer(_produced(error_code=6)),
        _answer(_produced(error_code=6, error_message="ask broker 2")),
    ]
    with ScriptedBroker(steps) as broker, SimpleClient("127.0.0.1", broker.port) as client:
        with pytest.raises(NotLeaderOrFollower, match="t-0"):
            client.produce("t", 0, [Record()])
        with pytest.raises(NotLeaderOrFollower, match="ask broker 2"):
            client.produce("t", 0, [Record()])


def test_produce_with_acks_0_does_not_wait_for_response() -> None:
    steps: list[Step] = [serve_versions(), lambda _: b"", _answer(_offsets(offset=1))]
    with ScriptedBroker(steps) as broker, SimpleClient("127.0.0.1", broker.port) as client:
        assert client.produce("t", 0, [Record()], acks=0) == -1
        assert client.list_offset("t", 0) == 1


def test_fetch_starts_at_requested_offset() -> None:
    batch = build_batch([Record(value=b"%d" % i) for i in range(5)], base_offset=10)
    steps = [serve_versions(), _answer(_fetched(records=batch))]
    with ScriptedBroker(steps) as broker, SimpleClient("127.0.0.1", broker.port) as client:
        records = client.fetch("t", 3, 13, max_wait_ms=9, max_bytes=1234)
    assert [(record.offset, record.value) for record in records] == [(13, b"3"), (14, b"4")]
    _, request = broker.requests[1]
    assert isinstance(request, fetch.FetchRequest)
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (9, 1, 1234)
    assert (request.session_id, request.session_epoch) == (0, -1)
    wanted = request.topics[0].partitions[0]
    assert (wanted.partition, wanted.fetch_offset, wanted.partition_max_bytes) == (3, 13, 1234)


def test_fetch_raises_partition_error_or_corruption() -> None:
    damaged = bytearray(build_batch([Record()]))
    damaged[-1] ^= 1
    steps = [
        serve_versions(),
        _answer(_fetched(error_code=1)),
        _answer(_fetched(records=bytes(damaged))),
    ]
    with ScriptedBroker(steps) as broker, SimpleClient("127.0.0.1", broker.port) as client:
        with pytest.raises(OffsetOutOfRange, match="t-0 at offset 7"):
            client.fetch("t", 0, 7)
        with pytest.raises(CorruptBatch):
            client.fetch("t", 0, 0)


def test_list_offset_by_timestamp_or_log_end() -> None:
    steps = [serve_versions()] + [_answer(_offsets(offset=offset)) for offset in (9, 0, -1)]
    with ScriptedBroker(steps) as broker, SimpleClient("127.0.0.1", broker.port) as client:
        assert client.list_offset("t", 1) == 9
        assert client.list_offset("t", 1, EARLIEST) == 0
        assert client.list_offset("t", 1, 1_700_000_000_000) == -1
    asked = []
    for _, request in broker.requests[1:]:
        assert isinstance(request, list_offsets.ListOffsetsRequest)
        asked.append(request.topics[0].partitions[0].timestamp)
    assert asked == [LATEST, EARLIEST, 1_700_000_000_000]


def test_empty_response_is_malformed() -> None:
    steps = [serve_versions(), _answer(list_offsets.ListOffsetsResponse())]
    with _client(steps) as client, pytest.raises(WireError, match="expected one result, found 0"):
        client.list_offset("t", 0)
