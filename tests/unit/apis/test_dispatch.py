"""Dispatch of invalid frames, failing handlers, and responses that cannot be encoded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plog.errors import ErrorCode, KafkaError, NotController, UnsupportedVersion
from plog.types import ZERO_UUID
from plog.wire.header import RequestHeader, encode_request
from plog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from plog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from plog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from plog.wire.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from plog.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from plog.wire.messages.find_coordinator import FindCoordinatorRequest
from plog.wire.messages.init_producer_id import InitProducerIdRequest
from plog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from plog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from plog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from plog.wire.messages.offset_delete import OffsetDeleteRequest
from plog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from plog.wire.messages.produce import ProduceRequest
from plog.wire.schema import ApiMessage, Struct
from plogd.apis.api_table import HANDLERS
from plogd.apis.dispatch import CloseConnection, Dispatched
from plogd.apis.request_context import RequestContext
from plogd.fair_queue import SLICE
from plogd.net.request_memory import RequestMemory
from plogd.ports import Cancelled, Later
from tests.helpers.sim.sim_broker import (
    SimBroker,
    connection,
    create_topic,
    fetch_request,
    produce_request,
)
from tests.helpers.sim.sim_ports import outcome


@pytest.fixture(scope="module")
def broker() -> SimBroker:
    started = SimBroker().start()
    create_topic(started, "t")
    return started


def frame_of(api_key: int, version: int, body: bytes = b"") -> bytes:
    header = api_key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True)
    return header + b"\0\0\0\7" + b"\xff\xff" + body


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"", "not a Kafka request"),
        (b"\0", "not a Kafka request"),
        (b"GET / HTTP/1.1\r\n\r\n", "unknown|not a Kafka request"),
        (frame_of(999, 0), "999"),
        (frame_of(-1, 0), "-1"),
        (frame_of(17, 0), "requested SASL authentication"),
        (bytes(24) + b"\0\0\0\x10" + bytes(16), "a ZooKeeper connect request"),
        (frame_of(4, 2), "4"),
        (frame_of(8, 1), r"OffsetCommit version 1 is not supported \(only 2 to 10\)"),
        (frame_of(3, 14), r"Metadata version 14 is not supported \(only 0 to 13\)"),
        (frame_of(0, 2), "Produce version 2 is not supported"),
        (frame_of(3, -1), "Metadata version -1"),
        (frame_of(22, 6, b"\0"), "InitProducerId version 6"),
        (frame_of(3, 1), "invalid Metadata request"),
        (frame_of(3, 1, b"\x7f\xff\xff\xff"), "invalid Metadata request"),
    ],
)
def test_invalid_or_unsupported_request_closes_the_connection(
    broker: SimBroker, frame: bytes, reason: str
) -> None:
    with pytest.raises(CloseConnection, match=reason):
        broker.dispatch_frame(frame)


def test_request_with_too_many_elements_closes_the_connection() -> None:
    broker = SimBroker(plog_request_max_elements=10_000).start()
    frame = frame_of(3, 1, (30_000).to_bytes(4, "big") + b"\0\1t" * 30_000)
    reason = "Metadata request has more than plog.request.max.elements=10000 elements"
    with pytest.raises(CloseConnection, match=reason):
        broker.dispatch_frame(frame)
    fitting = frame_of(3, 1, (9_999).to_bytes(4, "big") + b"\0\1t" * 9_999)
    assert broker.dispatch_frame(fitting).result is not None


@given(frame=st.binary(max_size=200))
def test_any_bytes_are_answered_or_close_the_connection(broker: SimBroker, frame: bytes) -> None:
    try:
        broker.dispatch_frame(frame)
    except CloseConnection:
        pass
    broker.settle()
    assert broker.bugs == []


@given(api_key=st.sampled_from([0, 1, 2, 3, 10, 18, 19, 20, 22, 32]), data=st.data())
def test_any_body_is_answered_or_closes_the_connection(
    broker: SimBroker, api_key: int, data: st.DataObject
) -> None:
    version = data.draw(st.integers(0, 18))
    body = data.draw(st.binary(max_size=100))
    try:
        broker.dispatch_frame(frame_of(api_key, version, body))
    except CloseConnection:
        pass
    broker.ports.advance(100)
    assert broker.bugs == []


def two_partitions() -> ProduceRequest:
    """A single partition would take the fast path of single_produce.py."""
    message = produce_request("t", b"a", acks=1)
    other = produce_request("t", b"b").topic_data[0].partition_data[0]
    other.index = 1
    message.topic_data[0].partition_data.append(other)
    return message


REQUESTS: dict[int, ApiMessage] = {
    0: two_partitions(),
    1: fetch_request("t"),
    2: ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition()])]),
    3: MetadataRequest(topics=[MetadataRequestTopic(name="t")]),
    8: OffsetCommitRequest(
        topics=[OffsetCommitRequestTopic(name="t", partitions=[OffsetCommitRequestPartition()])]
    ),
    9: OffsetFetchRequest(topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])]),
    10: FindCoordinatorRequest(key="g"),
    19: CreateTopicsRequest(topics=[CreatableTopic(name="n")]),
    20: DeleteTopicsRequest(topic_names=["t"]),
    22: InitProducerIdRequest(),
    32: DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_type=2)]),
    47: OffsetDeleteRequest(group_id="g"),
}
FIRST_OF_NEWER = {9: 8, 10: 4, 20: 6}
NEWER: dict[int, ApiMessage] = {
    9: OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)]),
    10: FindCoordinatorRequest(coordinator_keys=["g"]),
    20: DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]),
}
all_versions = pytest.mark.parametrize(
    ("api_key", "version"),
    [
        (row.api_key, version)
        for row in HANDLERS
        for version in range(row.first_version, row.last_version + 1)
        if row.api_key in REQUESTS
    ],
)


def request_for(api_key: int, version: int) -> ApiMessage:
    if version >= FIRST_OF_NEWER.get(api_key, version + 1):
        return NEWER[api_key]
    return REQUESTS[api_key]


def codes(value: Any) -> set[int]:
    """Yield every error code in a message."""
    if isinstance(value, list):
        return {code for one in value for code in codes(one)}
    if not isinstance(value, Struct):
        return set()
    found = {value.error_code} if hasattr(value, "error_code") else set()
    return found.union(*(codes(getattr(value, field.name)) for field in type(value).fields))


@pytest.fixture
def failing() -> Iterator[Callable[[int, Any], SimBroker]]:
    """Return a function that makes a broker whose handler of one API returns or raises a value."""
    restores: list[Any] = []

    def make(api_key: int, result: Any) -> SimBroker:
        broker = SimBroker().start()
        row = broker.dispatch._rows[api_key]
        original = row.handle

        def handle(request: ApiMessage, context: RequestContext, broker: object) -> Any:
            if isinstance(result, Exception):
                raise result
            return result

        object.__setattr__(row, "handle", handle)
        restores.append(lambda: object.__setattr__(row, "handle", original))
        return broker

    yield make
    for restore in restores:
        restore()


@all_versions
def test_bug_is_answered_unknown_server_error_in_every_version(
    failing: Any, api_key: int, version: int
) -> None:
    broker = failing(api_key, ZeroDivisionError())
    answer = broker.ask(request_for(api_key, version), version)
    assert codes(answer) - {0} == {ErrorCode.UNKNOWN_SERVER_ERROR}
    assert [type(error) for _, error in broker.bugs] == [ZeroDivisionError]
    assert "plog_unexpected_errors_total 1" in broker.metrics.expose().decode()


@pytest.mark.parametrize("api_key", REQUESTS)
def test_kafka_error_of_whole_request_is_answered_and_not_a_bug(failing: Any, api_key: int) -> None:
    broker = failing(api_key, NotController())
    row = broker.dispatch._rows[api_key]
    version = row.last_version
    answer = broker.ask(request_for(api_key, version), version)
    assert codes(answer) - {0} == {ErrorCode.NOT_CONTROLLER}
    assert broker.bugs == []


@pytest.mark.parametrize("error", [ZeroDivisionError(), NotController()])
def test_error_after_a_wait_is_answered(failing: Any, error: Exception) -> None:
    later: Later[ApiMessage] = Later()
    broker = failing(3, later)
    asked = broker.begin(REQUESTS[3], 9)
    assert not asked.is_done
    later.fail(error)
    code = error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR
    assert codes(asked.response()) - {0} == {code}


def test_response_that_cannot_be_encoded_is_a_bug_and_closes_files(
    failing: Any, broker: SimBroker
) -> None:
    broker.produce("t", b"a")
    read = broker.broker.replica_manager.partition("t", 0).read(0, 100, at_least_one=True)
    assert read.region is not None
    answer = FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic="t",
                partitions=[
                    PartitionData(records=read.region, preferred_read_replica=7),
                ],
            )
        ]
    )
    other = failing(1, answer)
    refused = other.ask(REQUESTS[1], 4)  # Version 4 has no place for the replica.
    assert codes(refused) - {0} == {ErrorCode.UNKNOWN_SERVER_ERROR}
    assert not read.region._open
    assert len(other.bugs) == 1


def test_failed_request_without_error_response_closes_the_connection(failing: Any) -> None:
    broker = failing(0, ZeroDivisionError())
    with pytest.raises(CloseConnection):
        broker.begin(produce_request("t", b"a", acks=0), 9)


def test_failing_refusal_closes_the_connection(failing: Any) -> None:
    broker = failing(3, ZeroDivisionError())
    row = broker.dispatch._rows[3]
    original = row.refuse
    object.__setattr__(row, "refuse", lambda *args: 1 / 0)
    try:
        with pytest.raises(CloseConnection):
            broker.begin(REQUESTS[3], 9)
    finally:
        object.__setattr__(row, "refuse", original)
    assert len(broker.bugs) == 2


def test_disconnect_cancels_the_wait_of_the_request(failing: Any) -> None:
    later: Later[ApiMessage] = Later()
    broker = failing(3, later)
    asked = broker.begin(REQUESTS[3], 9)
    asked.cancel()
    assert later.done
    with pytest.raises(Cancelled):
        outcome(asked._result)


def test_only_produce_is_marked_as_produce(broker: SimBroker) -> None:
    for api_key, is_produce in ((0, True), (3, False)):
        header = RequestHeader(api_key, 9, 1, None)
        frame = encode_request(header, REQUESTS[api_key])[4:]
        dispatched = broker.dispatch_frame(frame)
        assert isinstance(dispatched, Dispatched)
        assert dispatched.is_produce is is_produce
    broker.settle()


def test_requests_are_counted_by_api_and_version() -> None:
    broker = SimBroker().start()
    for version in (1, 1, 9):
        broker.ask(MetadataRequest(topics=[]), version)
    lines = broker.metrics.expose().decode()
    name = "kafka_network_requestmetrics_requests_total"
    assert f'{name}{{request="Metadata",version="1"}} 2' in lines
    assert f'{name}{{request="Metadata",version="9"}} 1' in lines


def test_requests_that_close_their_connection_are_counted() -> None:
    broker = SimBroker().start()
    with pytest.raises(CloseConnection):
        broker.dispatch_frame(b"")
    assert "plog_requests_closed_total 1" in broker.metrics.expose().decode()


def test_connection_is_named_after_its_client_address() -> None:
    assert str(connection()) == "192.0.2.77:50000"


def test_unsupported_version_from_a_handler_is_an_ordinary_error(failing: Any) -> None:
    broker = failing(3, UnsupportedVersion())
    answer = broker.ask(MetadataRequest(topics=[MetadataRequestTopic(topic_id=ZERO_UUID)]), 12)
    assert codes(answer) - {0} == {ErrorCode.UNSUPPORTED_VERSION}


# -- large requests and responses --------------------------------------------------------------


def groups_request(count: int) -> DescribeGroupsRequest:
    return DescribeGroupsRequest(groups=[f"group-{number}" for number in range(count)])


def test_other_clients_are_served_between_the_slices_of_a_large_request() -> None:
    broker = SimBroker().start()
    create_topic(broker, "t")
    large = broker.begin(groups_request(2000), 5)
    served = 0
    while not large.is_done:
        assert broker.begin(MetadataRequest(topics=None), 9).is_done
        served += 1
        broker.ports.timers.run_next()
    assert len(large.response().groups) == 2000
    assert served > 2 * 2000 // SLICE  # To decode it, and to encode its response.


def test_invalid_large_request_closes_the_connection() -> None:
    broker = SimBroker().start()
    header = RequestHeader(DescribeGroupsRequest.api_key, 5, 1, "test")
    frame = encode_request(header, groups_request(2000))[4:]
    dispatched = broker.dispatch_frame(frame[: len(frame) // 2])
    broker.settle()
    with pytest.raises(CloseConnection, match="invalid DescribeGroups request"):
        outcome(dispatched.result)


def test_client_of_large_request_can_disconnect_in_any_slice() -> None:
    broker = SimBroker().start()
    for passes in range(30):
        asked = broker.begin(groups_request(1000), 5)
        for _ in range(passes):
            if broker.ports.timers.next_due_ms == broker.ports.clock.monotonic_ms():
                broker.ports.timers.run_next()
        if asked.is_done:
            break
        asked.cancel()
        broker.settle()
    assert asked.is_done
    assert broker.bugs == []


def test_too_large_response_is_refused() -> None:
    broker = SimBroker(plog_response_max_bytes=1 << 20).start()
    names = [f"{number:0200}" for number in range(9_000)]
    request = DescribeGroupsRequest(groups=names)
    [error] = {one.error_code for one in broker.ask(request, 5).groups}
    assert error == ErrorCode.POLICY_VIOLATION
    assert broker.bugs == []


@pytest.mark.parametrize("groups", [40, SLICE + 20])
def test_too_large_response_of_few_elements_is_refused(failing: Any, groups: int) -> None:
    """The limit applies whether or not the response is encoded in slices; the last may be large."""
    described = [DescribedGroup(group_id="small") for _ in range(groups - 40)]
    described += [DescribedGroup(group_id="x" * 30_000) for _ in range(40)]
    broker = failing(DescribeGroupsRequest.api_key, DescribeGroupsResponse(groups=described))
    broker.dispatch._max_response_bytes = 1 << 20
    assert codes(broker.ask(groups_request(2), 5)) == {ErrorCode.POLICY_VIOLATION}
    assert broker.bugs == []


def test_concurrently_encoded_responses_stay_within_the_limit() -> None:
    broker = SimBroker(plog_queued_max_response_bytes=1 << 20).start()
    memory = broker.dispatch.memory
    names = [f"{number:0200}" for number in range(3000)]
    asked = [broker.begin(DescribeGroupsRequest(groups=names), 5) for _ in range(8)]
    most_bytes = 0
    while not all(one.is_done for one in asked):
        broker.ports.timers.run_next()
        most_bytes = max(most_bytes, memory.used_bytes)
        if most_bytes > 1 << 20:
            asked[5].cancel()
    slice_bytes = SLICE * 300
    assert 1 << 20 < most_bytes < (1 << 20) + 600_000 + slice_bytes
    assert memory.used_bytes == 0
    assert all(len(one.response().groups) == 3000 for one in asked if one is not asked[5])
    assert broker.bugs == []


def test_too_large_request_without_records_closes_the_connection() -> None:
    broker = SimBroker(plog_request_without_records_max_bytes=1 << 20).start()
    header = RequestHeader(DescribeGroupsRequest.api_key, 5, 1, "test")
    frame = encode_request(header, DescribeGroupsRequest(groups=["x" * 30_000] * 40))[4:]
    with pytest.raises(CloseConnection, match=r"plog\.request\.without\.records\.max\.bytes"):
        broker.dispatch_frame(frame)


@pytest.mark.parametrize("end", ["decoded", "unreadable", "client leaves"])
def test_copy_of_large_request_is_counted_until_it_is_decoded(end: str) -> None:
    broker = SimBroker().start()
    memory = broker.broker.copy_memory = RequestMemory(-1)
    header = RequestHeader(DescribeGroupsRequest.api_key, 5, 1, "test")
    frame = encode_request(header, groups_request(2000))[4:]
    if end == "unreadable":
        frame = frame[: len(frame) // 2]
    result = broker.dispatch_frame(frame).result
    assert isinstance(result, Later)
    assert len(frame) - 100 < memory.used_bytes < len(frame)
    for _ in range(3):
        broker.ports.timers.run_next()
    assert memory.used_bytes > 0
    if end == "client leaves":
        result.cancel()
    while memory.used_bytes:
        assert not result.done
        broker.ports.timers.run_next()
    assert result.done == (end != "decoded"), "the response is not encoded yet"
    broker.settle()
    assert broker.bugs == []
