"""FetchResponseHandler applies each partition of a response."""

from __future__ import annotations

from typing import Any

import pytest

from plog.client.consumer.completed_fetch import ReadingRules
from plog.client.consumer.fetch_buffer import FetchBuffer
from plog.client.consumer.fetch_plan import WantedPartition
from plog.client.consumer.fetch_response import FetchOutcome, FetchResponseHandler
from plog.client.consumer.partition_state import PartitionState, Phase
from plog.client.consumer.reset_target import EARLIEST, ResetTo
from plog.client.consumer.subscription_state import SubscriptionState
from plog.client.errors import CorruptRecords
from plog.client.network.metadata import NO_NODE
from plog.errors import ErrorCode, OffsetOutOfRange, TopicAuthorizationFailed
from plog.types import TopicPartition
from plog.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from tests.unit.client.consumer.test_completed_fetch import batch

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Site:
    def __init__(self, default: ResetTo | None = EARLIEST) -> None:
        self.now_s = 100.0
        self.positions = SubscriptionState(default_reset=default)
        self.positions.assign([T0, T1])
        self.positions.seek(T0, 5)
        self.positions.seek(T1, 5)
        self.buffer = FetchBuffer(self.positions)
        self.results = FetchResponseHandler(
            self.positions,
            self.buffer,
            ReadingRules(),
            now_s=lambda: self.now_s,
            delay_s=lambda failures: 2.0**failures,
            replica_lease_s=300.0,
        )

    def state(self, partition: TopicPartition = T0) -> PartitionState:
        return self.positions.states[partition]

    def wanted(self, partition: TopicPartition = T0) -> WantedPartition:
        state = self.state(partition)
        return WantedPartition(state, state.generation, state.fetch_offset, -1, 1000)

    def answer(self, asked: WantedPartition | None = None, **fields: Any) -> FetchOutcome:
        """Return the outcome of a response for partition 0 with these `fields`."""
        data = PartitionData(partition_index=0, high_watermark=fields.pop("hw", 50), **fields)
        response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[data])])
        return self.results.handle({T0: asked or self.wanted()}, response)


def test_records_are_buffered_and_bounds_applied() -> None:
    site = Site()
    records = batch(5, 6)
    news = site.answer(records=records, last_stable_offset=40, log_start_offset=2)
    assert (news.for_application, news.size_bytes) == (True, len(records))
    state = site.state()
    bounds = (state.high_watermark, state.last_stable_offset, state.log_start_offset)
    assert bounds == (50, 40, 2)
    assert state.fetch_offset == 7
    assert len(site.buffer) == 1


def test_response_without_records_does_not_notify_application() -> None:
    for records in (None, b""):
        assert not Site().answer(records=records).for_application


def test_stale_records_are_dropped_but_bounds_are_applied() -> None:
    """In a session, the broker sends a high watermark only once."""
    site = Site()
    asked = site.wanted()
    site.positions.seek(T0, 5)
    assert not site.answer(asked, records=batch(5)).for_application
    assert len(site.buffer) == 0
    assert site.positions.lag(T0) == 45


def test_unrequested_partition_is_ignored() -> None:
    site = Site()
    data = PartitionData(partition_index=9, high_watermark=1, records=batch(0))
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[data])])
    assert site.results.handle({T0: site.wanted()}, response) == FetchOutcome()


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    ],
)
def test_stale_leader_error_requests_metadata(code: ErrorCode) -> None:
    site = Site()
    news = site.answer(error_code=code)
    assert (news.metadata_is_stale, news.for_application) == (True, False)
    assert site.state().retry_at_s == 101.0
    site.answer(error_code=code)
    assert site.state().retry_at_s == 102.0


def test_partition_whose_new_leader_is_known_does_not_wait() -> None:
    site = Site()
    site.state().replica = 7
    data = PartitionData(
        partition_index=0, high_watermark=-1, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER
    )
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[data])])
    news = site.results.handle({T0: site.wanted()}, response, {T0})
    assert (news.has_moved, news.metadata_is_stale) == (True, False)
    assert (site.state().retry_at_s, site.state().replica) == (0.0, NO_NODE)


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.UNKNOWN_SERVER_ERROR])
def test_transient_error_is_retried(code: ErrorCode) -> None:
    site = Site()
    assert site.answer(error_code=code) == FetchOutcome()
    assert site.state().retry_at_s == 101.0


def test_out_of_range_offset_is_reset_by_policy() -> None:
    site = Site()
    news = site.answer(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
    assert (news.needs_offset, news.for_application) == (True, False)
    assert (site.state().phase, site.state().reset) == (Phase.RESETTING, EARLIEST)


def test_out_of_range_offset_raises_when_reset_is_none() -> None:
    site = Site(default=None)
    assert site.answer(error_code=ErrorCode.OFFSET_OUT_OF_RANGE).for_application
    error = site.positions.pop_error()
    assert isinstance(error, OffsetOutOfRange)
    assert "offset 5 of t-0 is out of range" in str(error)
    assert site.positions.position(T0) == 5


def test_out_of_range_error_ahead_waits_for_buffered_records() -> None:
    site = Site(default=None)
    site.answer(records=batch(5, 6))
    assert site.answer(error_code=ErrorCode.OFFSET_OUT_OF_RANGE) == FetchOutcome()
    assert site.positions.pop_error() is None
    one = site.buffer.first()
    assert one is not None
    one.fetched.take(9)
    site.buffer.took(one)
    assert site.answer(error_code=ErrorCode.OFFSET_OUT_OF_RANGE).for_application


def test_out_of_range_error_of_follower_is_checked_with_leader() -> None:
    site = Site()
    site.answer(preferred_read_replica=9)
    assert site.state().node_at(399.0) == 9
    assert site.answer(error_code=ErrorCode.OFFSET_OUT_OF_RANGE) == FetchOutcome(has_moved=True)
    assert site.state().node_at(101.0) == -1
    assert site.state().phase is Phase.FETCHING


def test_fatal_error_is_reported_and_retried_later() -> None:
    site = Site()
    assert site.answer(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED).for_application
    assert isinstance(site.positions.pop_error(), TopicAuthorizationFailed)
    assert site.state().retry_at_s == 101.0
    assert site.positions.position(T0) == 5


def test_corruption_found_by_broker_is_reported_with_offset() -> None:
    site = Site()
    assert site.answer(error_code=ErrorCode.CORRUPT_MESSAGE).for_application
    error = site.positions.pop_error()
    assert isinstance(error, CorruptRecords)
    assert (error.partition, error.offset) == (T0, 5)


def test_error_from_before_a_seek_is_ignored() -> None:
    site = Site(default=None)
    asked = site.wanted()
    site.positions.seek(T0, 6)
    for code in (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.TOPIC_AUTHORIZATION_FAILED):
        assert not site.answer(asked, error_code=code).for_application
    assert site.positions.pop_error() is None
    assert site.state().retry_at_s == 0.0


def test_buffered_part_does_not_keep_whole_response_in_memory() -> None:
    site = Site()
    frame = memoryview(batch(5, 6) + batch(5))
    size = len(batch(5, 6))
    fields = [
        PartitionData(partition_index=0, high_watermark=9, records=frame[:size]),
        PartitionData(partition_index=1, high_watermark=9, records=frame[size:]),
    ]
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=fields)])
    site.results.handle({T0: site.wanted(), T1: site.wanted(T1)}, response)
    assert len(site.buffer) == 2
    fields[0].records.release()  # type: ignore[union-attr]
    one = site.buffer.first()
    assert one is not None
    assert [x.offset for x in one.fetched.take(9)] == [5, 6]
