"""Offset queries and results as plain values; test_core.py sends them."""

from __future__ import annotations

from typing import Any

import pytest

from plog.client.consumer.offset_lookup import (
    TimestampQuery,
    TimestampResults,
    list_offsets_request,
    read_list_offsets,
)
from plog.client.errors import ConnectionFailed
from plog.client.values import OffsetAndTimestamp
from plog.errors import (
    ErrorCode,
    KafkaError,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
    UnsupportedVersion,
    error_from_code,
)
from plog.types import TopicPartition
from plog.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tests.helpers.client.consumer_site import ConsumerSite

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def test_queries_to_one_leader_share_a_request() -> None:
    queries = [TimestampQuery(T0, -1, 4), TimestampQuery(U0, 77), TimestampQuery(T1, -2)]
    request = list_offsets_request(queries, isolation_level=1, timeout_ms=500)
    assert (request.replica_id, request.isolation_level, request.timeout_ms) == (-1, 1, 500)
    asked = {
        (topic.name, one.partition_index): (one.timestamp, one.current_leader_epoch)
        for topic in request.topics
        for one in topic.partitions
    }
    assert asked == {("t", 0): (-1, 4), ("t", 1): (-2, -1), ("u", 0): (77, -1)}
    assert [topic.name for topic in request.topics] == ["t", "u"]


def answer(partition: int = 0, **result: int) -> ListOffsetsResponse:
    one = ListOffsetsPartitionResponse(partition_index=partition, **result)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[one])])


def test_result_has_offset_and_timestamp() -> None:
    found, failed = read_list_offsets(
        [TimestampQuery(T0, 70)], answer(error_code=0, timestamp=77, offset=5, leader_epoch=3)
    )
    assert (found, failed) == ({T0: OffsetAndTimestamp(5, 77, 3)}, {})


@pytest.mark.parametrize(
    "result",
    [{"error_code": 0, "offset": -1}, {"error_code": ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT}],
)
def test_time_after_last_record_returns_none(result: dict[str, int]) -> None:
    assert read_list_offsets([TimestampQuery(T0, 70)], answer(**result)) == ({T0: None}, {})


def test_errors_and_omitted_partitions_are_failures() -> None:
    queries = [TimestampQuery(T0, 70), TimestampQuery(T1, 70)]
    result = answer(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    found, failed = read_list_offsets(queries, result)
    assert found == {}
    assert isinstance(failed[T0], TopicAuthorizationFailed)
    assert failed[T1].retriable


def test_lost_response_is_retried() -> None:
    site = ConsumerSite()
    partitions = site.create("t", 2)
    losses = iter(["drop", "lose"])
    site.sim.on_request = lambda request: (
        next(losses, None) if isinstance(request, ListOffsetsRequest) else None
    )
    assert site.sim.run(site.core.end_offsets(partitions)) == dict.fromkeys(partitions, 0)


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.BROKER_NOT_AVAILABLE])
def test_transient_error_is_retried(monkeypatch: pytest.MonkeyPatch, code: ErrorCode) -> None:
    """For example, inconsistent metadata may lack the leader in its list of brokers."""
    site = ConsumerSite()
    [partition] = site.create("t")
    fail(site, partition, code, 1, monkeypatch)
    assert site.sim.run(site.core.end_offsets([partition])) == {partition: 0}


def fail(
    site: ConsumerSite,
    partition: TopicPartition,
    code: ErrorCode,
    times: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Let the next lookups of a partition fail."""
    lookup = site.core._lookup
    ask = lookup.ask
    answers = [TimestampResults({}, {partition: error_from_code(code, "not now")})] * times

    async def asked(*query: Any, **options: Any) -> TimestampResults:
        return answers.pop() if answers else await ask(*query, **options)

    monkeypatch.setattr(lookup, "ask", asked)


UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_unknown_partition_is_looked_up_with_new_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    site = ConsumerSite()
    [partition] = site.create("t")
    fail(site, partition, UNKNOWN, 1, monkeypatch)
    found = site.core._lookup.ends([partition], timeout_s=60, retry_unknown=False)
    assert site.sim.run(found) == {partition: 0}


def test_partition_that_stays_unknown_is_reported_before_the_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = ConsumerSite()
    [partition] = site.create("t")
    fail(site, partition, UNKNOWN, 2, monkeypatch)
    with pytest.raises(UnknownTopicOrPartition, match="not now"):
        site.sim.run(site.core._lookup.beginnings([partition], timeout_s=60, retry_unknown=False))
    assert site.sim.now_s() < 5


def test_persistent_error_is_raised_at_timeout() -> None:
    site = ConsumerSite()
    [partition] = site.create("t")
    site.sim.on_request = lambda request: (
        "drop" if isinstance(request, ListOffsetsRequest) else None
    )
    with pytest.raises(ConnectionFailed, match="tried for 5 s"):
        site.sim.run(site.core.end_offsets([partition], timeout_s=5.0))
    assert site.sim.now_s() < 8


def test_special_timestamp_is_refused_when_broker_is_too_old() -> None:
    site = ConsumerSite()
    [partition] = site.create("t")
    site.sim.run(site.core.end_offsets([partition]))
    leader = site.cluster.metadata.leader_of(partition)
    assert leader is not None
    connection = site.cluster.idle_connection(leader)
    assert connection is not None
    connection._version_by_key[ListOffsetsRequest.api_key] = 6
    answers = site.sim.run(site.core._lookup.ask(leader, [TimestampQuery(partition, -3)], 5.0))
    error: KafkaError = answers.failed[partition]
    assert isinstance(error, UnsupportedVersion)
    assert "too old" in str(error)
