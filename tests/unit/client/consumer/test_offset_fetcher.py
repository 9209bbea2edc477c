"""OffsetFetcher finds and validates positions, with scripted brokers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any

import pytest
from twisted.internet.task import Clock

from plog.client.consumer.offset_fetcher import OffsetFetcher
from plog.client.consumer.offset_lookup import OffsetLookup
from plog.client.consumer.partition_state import Phase
from plog.client.consumer.reset_target import EARLIEST, ResetTo
from plog.client.consumer.subscription_state import SubscriptionState
from plog.client.errors import ConnectionFailed, LogTruncated, NoOffsetForPartition
from plog.client.network.cluster import Cluster
from plog.client.network.metadata import Broker, ClusterMetadata, PartitionMetadata, TopicMetadata
from plog.client.network.twisted_network import DeferredNetwork
from plog.client.values import OffsetAndMetadata
from plog.errors import (
    ClusterAuthorizationFailed,
    ErrorCode,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from plog.types import TopicPartition
from plog.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from plog.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from plog.wire.schema import ApiMessage

T0 = TopicPartition("t", 0)


class ScriptedBrokers:
    """A replacement for `Cluster`: `answer` returns the response to a request, or raises."""

    def __init__(self, network: DeferredNetwork) -> None:
        self.network = network
        self.asked: list[ApiMessage] = []
        self.updates = 0
        self.speaks_epochs = True
        self.answer: Callable[[ApiMessage], ApiMessage] = self._offset_zero

    def _offset_zero(self, request: ApiMessage) -> ApiMessage:
        return offset_response(0)

    async def connection(self, node_id: int, **_: Any) -> ScriptedBrokers:
        return self

    def speaks(self, request: type[ApiMessage]) -> bool:
        return self.speaks_epochs

    def version_of(self, request: type[ApiMessage]) -> int:
        return request.max_version

    async def ask_node(self, node_id: int, request: ApiMessage, response: Any, **_: Any) -> Any:
        self.asked.append(request)
        return self.answer(request)

    def request_update(self) -> None:
        self.updates += 1


def offset_response(offset: int, error_code: int = 0) -> ListOffsetsResponse:
    one = ListOffsetsPartitionResponse(partition_index=0, error_code=error_code, offset=offset)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[one])])


def end_response(epoch: int, end_offset: int, error_code: int = 0) -> OffsetForLeaderEpochResponse:
    one = EpochEndOffset(
        partition=0, error_code=error_code, leader_epoch=epoch, end_offset=end_offset
    )
    topic = OffsetForLeaderTopicResult(topic="t", partitions=[one])
    return OffsetForLeaderEpochResponse(topics=[topic])


class Site:
    """One partition of a topic, led by node 1 in epoch 5."""

    def __init__(
        self,
        default: ResetTo | None = EARLIEST,
        committed: Mapping[TopicPartition, OffsetAndMetadata | None] | Exception | None = None,
    ) -> None:
        self.clock = Clock()
        network = DeferredNetwork(self.clock)  # type: ignore[arg-type]
        self.brokers = ScriptedBrokers(network)
        self.positions = SubscriptionState(default_reset=default)
        self.committed = committed
        self.found = self.errors = 0
        cluster: Cluster = self.brokers  # type: ignore[assignment]
        self.keeper = OffsetFetcher(
            cluster,
            network,
            self.positions,
            OffsetLookup(cluster, network, isolation_level=0),
            committed=None if committed is None else self._committed,
            request_timeout_s=30.0,
            patience_s=60.0,
            delay_s=lambda failures: 1.0,
            on_found=self._on_found,
            on_error=self._on_error,
        )
        self.positions.assign([T0])
        self.lead(5)

    def start(self) -> Site:
        self.keeper.start()
        return self

    async def _committed(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, OffsetAndMetadata | None]:
        if isinstance(self.committed, Exception):
            raise self.committed
        assert self.committed is not None
        return self.committed

    def _on_found(self) -> None:
        self.found += 1

    def _on_error(self) -> None:
        self.errors += 1

    def lead(self, epoch: int, *, exists: bool = True) -> None:
        known = PartitionMetadata(index=0, leader=1, leader_epoch=epoch)
        topic = TopicMetadata(name="t", partitions=(known,) if exists else ())
        metadata = ClusterMetadata(
            brokers=MappingProxyType({1: Broker(id=1, host="x", port=1)}),
            topics=MappingProxyType({"t": topic}),
        )
        self.positions.update_leaders(metadata, self.clock.seconds())
        self.keeper.wake()

    @property
    def place(self) -> tuple[int | None, Phase]:
        state = self.positions.states[T0]
        return state.position, state.phase

    def error(self) -> Exception | None:
        return self.positions.pop_error()


def test_reading_starts_at_committed_offset() -> None:
    site = Site(committed={T0: OffsetAndMetadata(12)}).start()
    assert site.place == (12, Phase.FETCHING)
    assert site.found == 1
    assert site.brokers.asked == []


def test_committed_offset_with_epoch_is_validated_first() -> None:
    site = Site(committed={T0: OffsetAndMetadata(12, leader_epoch=4)})
    site.brokers.answer = lambda _: end_response(4, 20)
    site.start()
    assert site.place == (12, Phase.FETCHING)
    [request] = site.brokers.asked
    assert isinstance(request, OffsetForLeaderEpochRequest)
    one = request.topics[0].partitions[0]
    assert (one.leader_epoch, one.current_leader_epoch, request.replica_id) == (4, 5, -1)


def test_reset_policy_applies_without_committed_offset() -> None:
    site = Site(committed={T0: None})
    site.brokers.answer = lambda _: offset_response(33)
    site.start()
    assert site.place == (33, Phase.FETCHING)


def test_missing_offset_is_reported_repeatedly_when_reset_is_none() -> None:
    site = Site(default=None, committed={}).start()
    assert isinstance(site.error(), NoOffsetForPartition)
    assert site.error() is None
    site.committed = {T0: OffsetAndMetadata(3)}
    site.clock.advance(1.0)
    assert site.place == (3, Phase.FETCHING)


def test_retriable_coordinator_error_is_retried_and_others_reported() -> None:
    site = Site(committed=ConnectionFailed("x")).start()
    assert site.error() is None
    assert site.brokers.updates == 1
    site.committed = ClusterAuthorizationFailed("no")
    site.clock.advance(1.0)
    assert isinstance(site.error(), ClusterAuthorizationFailed)
    site.committed = {T0: OffsetAndMetadata(3)}
    site.clock.advance(1.0)
    assert site.place == (3, Phase.FETCHING)


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_SERVER_ERROR])
def test_reset_is_retried_after_backoff(code: ErrorCode) -> None:
    site = Site()
    site.brokers.answer = lambda _: offset_response(-1, code)
    site.start()
    assert site.place == (None, Phase.RESETTING)
    assert len(site.brokers.asked) == 1
    site.brokers.answer = lambda _: offset_response(9)
    site.clock.advance(0.9)
    assert len(site.brokers.asked) == 1
    site.clock.advance(0.1)
    assert site.place == (9, Phase.FETCHING)
    assert site.error() is None


def test_refused_reset_is_reported() -> None:
    site = Site()
    site.brokers.answer = lambda _: offset_response(-1, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    site.start()
    assert isinstance(site.error(), TopicAuthorizationFailed)
    assert site.errors == 1
    site.clock.advance(1.0)
    assert isinstance(site.error(), TopicAuthorizationFailed)


def test_time_after_last_record_resets_to_end() -> None:
    site = Site(default=ResetTo(0, age_ms=1000))

    def answer(request: ApiMessage) -> ApiMessage:
        assert isinstance(request, ListOffsetsRequest)
        is_end = request.topics[0].partitions[0].timestamp == -1
        return offset_response(50 if is_end else -1)

    site.brokers.answer = answer
    site.start()
    assert site.place == (50, Phase.FETCHING)


def validating(default: ResetTo | None, epoch_response: OffsetForLeaderEpochResponse) -> Site:
    """Return a consumer at offset 12 of epoch 4 after a new leader has returned the epoch's end."""
    site = Site(default=default).start()
    site.positions.seek(T0, 12, leader_epoch=4)
    site.brokers.answer = lambda _: epoch_response
    site.keeper.wake()
    return site


@pytest.mark.parametrize("end_offset", [12, 40])
def test_position_within_leader_log_is_kept(end_offset: int) -> None:
    assert validating(None, end_response(4, end_offset)).place == (12, Phase.FETCHING)


def test_truncated_log_is_read_from_divergence() -> None:
    site = validating(EARLIEST, end_response(3, 10))
    assert site.place == (10, Phase.FETCHING)
    assert site.positions.states[T0].position_epoch == 3


def test_truncation_raises_when_reset_is_none() -> None:
    site = validating(None, end_response(3, 10))
    error = site.error()
    assert isinstance(error, LogTruncated)
    assert "truncated before the position 12, to 10" in str(error)
    assert site.place == (12, Phase.VALIDATING)
    site.positions.seek(T0, 10)
    assert site.place == (10, Phase.FETCHING)


def test_unknown_epoch_triggers_reset() -> None:
    site = Site().start()
    site.positions.seek(T0, 12, leader_epoch=4)
    site.brokers.answer = lambda request: (
        end_response(-1, -1)
        if isinstance(request, OffsetForLeaderEpochRequest)
        else offset_response(2)
    )
    site.keeper.wake()
    assert site.place == (2, Phase.FETCHING)


@pytest.mark.parametrize("code", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH])
def test_epoch_mismatch_is_retried(code: ErrorCode) -> None:
    site = validating(EARLIEST, end_response(-1, -1, code))
    assert site.place == (12, Phase.VALIDATING)
    assert site.brokers.updates == 1
    site.brokers.answer = lambda _: end_response(4, 20)
    site.lead(6)
    assert site.place == (12, Phase.FETCHING)


def test_position_counts_as_valid_when_broker_cannot_validate() -> None:
    site = Site().start()
    site.brokers.speaks_epochs = False
    site.positions.seek(T0, 12, leader_epoch=4)
    site.keeper.wake()
    assert site.place == (12, Phase.FETCHING)


def test_unexpected_error_is_reported_and_retried() -> None:
    site = Site()

    def answer(request: ApiMessage) -> ApiMessage:
        raise ZeroDivisionError

    site.brokers.answer = answer
    site.start()
    assert isinstance(site.error(), ZeroDivisionError)
    site.brokers.answer = lambda _: offset_response(9)
    site.clock.advance(1.0)
    assert site.place == (9, Phase.FETCHING)


def test_unknown_partition_is_reported_every_minute() -> None:
    site = Site().start()
    site.lead(5, exists=False)
    site.clock.advance(59.0)
    assert site.error() is None
    site.clock.advance(1.0)
    assert isinstance(site.error(), UnknownTopicOrPartition)
    site.clock.advance(59.0)
    assert site.error() is None
    site.clock.advance(1.0)
    assert isinstance(site.error(), UnknownTopicOrPartition)
    assert site.errors == 2


def test_no_requests_are_sent_after_close() -> None:
    site = Site().start()
    site.keeper.close()
    site.positions.request_reset(T0, EARLIEST)
    asked = len(site.brokers.asked)
    site.keeper.wake()
    site.clock.advance(100.0)
    assert len(site.brokers.asked) == asked
