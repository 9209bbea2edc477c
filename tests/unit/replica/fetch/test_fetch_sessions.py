"""Fetch sessions (KIP-227): their contents, incremental responses, bounds and eviction."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from plog.errors import (
    ErrorCode,
    InconsistentTopicId,
    KafkaError,
    KafkaStorageError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from plog.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from plogd.fair_queue import SLICE, FairQueue
from plogd.replica.fetch.fetch_context import NO_SESSION, FetchContext
from plogd.replica.fetch.fetch_sessions import MIN_EVICTION_MS, FetchSessionCache
from plogd.replica.fetch.partition_read import PartitionRead
from tests.helpers.sim.sim_ports import SimPorts, settled

TOPIC_ID = b"t" * 16


class Cache(FetchSessionCache):
    """A session cache with an accessible clock."""

    def __init__(
        self, max_sessions: int = 10, *, max_partitions: int = 1000, max_total: int = 5000
    ) -> None:
        self.ports = SimPorts()
        super().__init__(
            max_sessions,
            max_partitions=max_partitions,
            max_total=max_total,
            clock=self.ports.clock,
            random=self.ports.random,
            fair_queue=FairQueue(self.ports.timers),
        )

    def fetch(
        self,
        partitions: Sequence[int] = (),
        *,
        session_id: int = 0,
        epoch: int = 0,
        forget: Sequence[int] = (),
        version: int = 11,
        offset: int = 0,
        replica_id: int = -1,
    ) -> FetchContext:
        by_id = version >= 13
        name, topic_id = ("", TOPIC_ID) if by_id else ("t", bytes(16))
        request = FetchRequest(
            replica_id=replica_id if version < 15 else -1,
            replica_state=ReplicaState(replica_id=replica_id if version >= 15 else -1),
            session_id=session_id,
            session_epoch=epoch,
            topics=[
                FetchTopic(
                    topic=name,
                    topic_id=topic_id,
                    partitions=[
                        FetchPartition(partition=number, fetch_offset=offset)
                        for number in partitions
                    ],
                )
            ],
            forgotten_topics_data=[
                ForgottenTopic(topic=name, topic_id=topic_id, partitions=list(forget))
            ],
        )
        return settled(self.ports, self.begin(request, version, lambda topic_id: "t"))

    def open_session(
        self, partitions: Sequence[int], version: int = 11, *, replica_id: int = -1
    ) -> int:
        context = self.fetch(partitions, version=version, replica_id=replica_id)
        session_id, answered = context.finish([read() for _ in context.items])
        assert answered == list(range(len(partitions)))
        return session_id


class Region:
    """The part of a FileRegion that sessions use."""

    nbytes = 100


def read(
    high_watermark: int = 0, *, data: bool = False, error: KafkaError | None = None, start: int = 0
) -> PartitionRead:
    region = Region() if data else None
    return PartitionRead(error, high_watermark, -1, start, region)  # type: ignore[arg-type]


def partitions_of(context: FetchContext) -> list[int]:
    return [item.request.partition for item in context.items]


def test_full_fetch_opens_a_session_that_the_next_fetch_continues() -> None:
    cache = Cache()
    session_id = cache.open_session([0, 1])
    assert session_id != NO_SESSION
    context = cache.fetch(session_id=session_id, epoch=1)
    assert partitions_of(context) == [0, 1]
    assert context.finish([read(), read()]) == (session_id, [])


def test_fetch_without_a_session_returns_everything_and_opens_none() -> None:
    cache = Cache()
    context = cache.fetch([0, 1], epoch=-1)
    assert context.finish([read(), read()]) == (NO_SESSION, [0, 1])
    assert len(cache) == 0


@pytest.mark.parametrize(
    "result",
    [read(data=True), read(5), read(start=3), read(-1, error=UnknownTopicOrPartition(), start=-1)],
    ids=["data", "high watermark", "log start", "error"],
)
def test_incremental_fetch_returns_only_changed_partitions(result: PartitionRead) -> None:
    cache = Cache()
    session_id = cache.open_session([0, 1])
    context = cache.fetch(session_id=session_id, epoch=1)
    assert context.finish([read(), result])[1] == [1]


def test_end_of_an_error_is_returned_as_a_change() -> None:
    cache = Cache()
    session_id = cache.open_session([0])
    offline = PartitionRead(KafkaStorageError(""))
    for epoch, result, answered in (
        (1, offline, [0]),
        (2, offline, [0]),
        (3, read(), [0]),
        (4, read(), []),
    ):
        context = cache.fetch(session_id=session_id, epoch=epoch)
        assert context.finish([result])[1] == answered, epoch


def test_session_partitions_are_added_changed_and_removed() -> None:
    cache = Cache()
    session_id = cache.open_session([0, 1])
    context = cache.fetch([1, 2], session_id=session_id, epoch=1, forget=[0], offset=7)
    assert [(item.request.partition, item.request.fetch_offset) for item in context.items] == [
        (1, 7),
        (2, 7),
    ]


def test_partition_with_data_is_read_last_in_the_next_fetch() -> None:
    cache = Cache()
    session_id = cache.open_session([0, 1, 2])
    context = cache.fetch(session_id=session_id, epoch=1)
    context.finish([read(data=True), read(), read()])
    assert partitions_of(cache.fetch(session_id=session_id, epoch=2)) == [1, 2, 0]


def test_session_closes_when_all_partitions_are_removed() -> None:
    cache = Cache()
    session_id = cache.open_session([0])
    context = cache.fetch(session_id=session_id, epoch=1, forget=[0])
    assert (context.error, context.finish([]), len(cache)) == (None, (NO_SESSION, []), 0)


@pytest.mark.parametrize(
    ("known", "epoch", "version", "code"),
    [
        (False, 1, 11, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (True, 2, 11, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (True, 1, 13, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
)
def test_request_that_does_not_match_its_session_is_refused(
    known: bool, epoch: int, version: int, code: ErrorCode
) -> None:
    cache = Cache()
    session_id = cache.open_session([0]) if known else 99
    context = cache.fetch(session_id=session_id, epoch=epoch, version=version)
    assert context.error is not None
    assert (context.error.code, context.items) == (code, ())


def test_full_fetch_with_a_session_id_closes_that_session() -> None:
    cache = Cache()
    session_id = cache.open_session([0])
    cache.fetch([0], session_id=session_id, epoch=-1)
    assert len(cache) == 0


def test_response_overtaken_by_the_next_request_is_an_error() -> None:
    cache = Cache()
    session_id = cache.open_session([0])
    first = cache.fetch(session_id=session_id, epoch=1)
    cache.fetch(session_id=session_id, epoch=2)
    assert first.finish([read(data=True)])[1] == []
    assert first.error is not None
    assert first.error.code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_session_epoch_wraps_to_one() -> None:
    cache = Cache()
    session_id = cache.open_session([0])
    cache._sessions[session_id].epoch = 0x7FFFFFFF
    assert cache.fetch(session_id=session_id, epoch=0x7FFFFFFF).error is None
    assert cache.fetch(session_id=session_id, epoch=1).error is None


UNKNOWN = [UnknownTopicOrPartition(), UnknownTopicId(), InconsistentTopicId()]


@pytest.mark.parametrize("error", UNKNOWN, ids=lambda error: type(error).__name__)
def test_session_is_not_opened_while_a_partition_is_unknown(error: KafkaError) -> None:
    cache = Cache()
    context = cache.fetch([0, 1, 2])
    unknown = read(-1, error=error, start=-1)
    assert context.finish([read(), unknown, read()]) == (NO_SESSION, [0, 1, 2])
    assert (len(cache), cache.partition_count) == (0, 0)
    # The client repeats its full fetch, and gets a session once all partitions exist.
    assert cache.open_session([0, 1, 2]) != NO_SESSION


@pytest.mark.parametrize("error", UNKNOWN, ids=lambda error: type(error).__name__)
def test_session_closes_when_a_partition_is_unknown(error: KafkaError) -> None:
    cache = Cache()
    session_id = cache.open_session([0, 1])
    context = cache.fetch([2], session_id=session_id, epoch=1)
    unknown = read(-1, error=error, start=-1)
    assert context.finish([read(), read(data=True), unknown]) == (NO_SESSION, [1, 2])
    assert (len(cache), cache.partition_count) == (0, 0)
    # A client that ignores the session id also has to start over.
    refused = cache.fetch(session_id=session_id, epoch=2).error
    assert refused is not None
    assert refused.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("count", [2, SLICE])
def test_repeated_partition_is_read_once_using_the_last_element(count: int) -> None:
    cache = Cache()
    request = FetchRequest(
        topics=[
            FetchTopic(
                topic="t",
                partitions=[
                    FetchPartition(partition=number, fetch_offset=offset)
                    for offset in range(count)
                    for number in (1, 0)
                ],
            ),
            FetchTopic(topic="t", partitions=[FetchPartition(partition=0, fetch_offset=99)]),
        ]
    )
    context = settled(cache.ports, cache.begin(request, 11, lambda topic_id: "t"))
    offsets = [(item.request.partition, item.request.fetch_offset) for item in context.items]
    assert offsets == [(1, count - 1), (0, 99)]


def test_session_with_too_many_partitions_is_not_opened() -> None:
    cache = Cache(max_partitions=3)
    assert cache.open_session([0, 1, 2, 3]) == NO_SESSION
    assert cache.open_session([0, 1, 2]) != NO_SESSION


@pytest.mark.parametrize("bounds", [(3, 5000), (1000, 4)])
def test_session_closes_when_it_would_have_too_many_partitions(bounds: tuple[int, int]) -> None:
    max_partitions, max_total = bounds
    cache = Cache(max_partitions=max_partitions, max_total=max_total)
    session_id = cache.open_session([0, 1])
    context = cache.fetch([1, 2], session_id=session_id, epoch=1)  # One of them is new.
    assert context.finish([read()] * 3)[0] == session_id
    context = cache.fetch([3, 4], session_id=session_id, epoch=2)
    assert context.error is not None
    assert context.error.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (len(cache), cache.partition_count) == (0, 0)


def test_partitions_of_all_sessions_are_bounded() -> None:
    cache = Cache(max_total=5)
    first = cache.open_session([0, 1, 2])
    assert cache.open_session([0, 1, 2]) == NO_SESSION
    assert cache.open_session([0, 1]) != NO_SESSION
    assert cache.fetch(session_id=first, epoch=1).error is None
    cache.ports.advance(MIN_EVICTION_MS + 1)
    assert cache.open_session([0, 1, 2, 3]) != NO_SESSION  # Both are old enough to be replaced.
    assert (len(cache), cache.partition_count, cache.evictions) == (1, 4, 2)


class TestEviction:
    """Eviction from a full cache."""

    def test_young_session_is_not_evicted(self) -> None:
        cache = Cache(max_sessions=1)
        session_id = cache.open_session([0])
        assert cache.open_session([0, 1]) == NO_SESSION
        assert cache.fetch(session_id=session_id, epoch=1).error is None

    def test_idle_session_is_evicted(self) -> None:
        cache = Cache(max_sessions=1)
        cache.open_session([0, 1, 2])
        cache.ports.advance(MIN_EVICTION_MS + 1)
        assert cache.open_session([0]) != NO_SESSION
        assert (len(cache), cache.evictions) == (1, 1)

    def test_old_active_session_is_evicted_for_a_larger_one_only(self) -> None:
        cache = Cache(max_sessions=1)
        session_id = cache.open_session([0, 1])
        cache.ports.advance(MIN_EVICTION_MS + 1)
        cache.fetch(session_id=session_id, epoch=1)
        assert cache.open_session([0]) == NO_SESSION
        assert cache.open_session([2, 3]) == NO_SESSION
        assert cache.open_session([0, 1, 2]) != NO_SESSION

    @pytest.mark.parametrize("version", [14, 17])
    def test_follower_replaces_a_larger_session_of_a_consumer(self, version: int) -> None:
        cache = Cache(max_sessions=2)
        consumers = [cache.open_session([0, 1, 2]), cache.open_session([0, 1])]
        assert cache.open_session([0], version, replica_id=2) == NO_SESSION
        cache.ports.advance(MIN_EVICTION_MS + 1)
        for session_id in consumers:
            cache.fetch(session_id=session_id, epoch=1)
        assert cache.open_session([0], version, replica_id=2) != NO_SESSION
        assert cache.fetch(session_id=consumers[0], epoch=2).error is None
        assert cache.fetch(session_id=consumers[1], epoch=2).error is not None, "the smaller one"

    def test_consumer_does_not_replace_a_session_of_a_follower(self) -> None:
        cache = Cache(max_sessions=1)
        follower = cache.open_session([0], 17, replica_id=2)
        cache.ports.advance(MIN_EVICTION_MS + 1)
        cache.fetch(session_id=follower, epoch=1, version=17, replica_id=2)
        assert cache.open_session([0, 1, 2]) == NO_SESSION
        assert cache.open_session([0, 1], 17, replica_id=3) != NO_SESSION
        cache.ports.advance(MIN_EVICTION_MS + 1)
        assert cache.open_session([0]) != NO_SESSION, "the follower is gone"

    def test_session_is_not_opened_when_max_sessions_is_zero(self) -> None:
        assert Cache(max_sessions=0).open_session([0]) == NO_SESSION

    def test_session_without_partitions_is_not_opened(self) -> None:
        assert Cache().open_session([]) == NO_SESSION


def test_session_partitions_are_counted() -> None:
    cache = Cache()
    cache.open_session([0, 1])
    cache.open_session([0])
    assert cache.partition_count == 3
    session_id = cache.open_session([5])
    cache.fetch([6, 7], session_id=session_id, epoch=1, forget=[5])
    assert cache.partition_count == 5
    cache.fetch(session_id=session_id, epoch=0)
    assert cache.partition_count == 3


def test_topics_of_a_session_are_returned_and_empty_for_an_unknown_id() -> None:
    cache = Cache()
    assert cache.topics_in(cache.open_session([0, 1])) == {"t"}
    assert cache.topics_in(NO_SESSION) == set()
