"""Fetch sessions: the broker remembers a consumer's partitions, so requests contain only changes.

A full fetch (epoch 0) can open a session. Later fetches (epochs 1, 2, …) contain only changed
partitions, and their responses omit partitions with nothing new. A session ends when it is evicted,
or when a request does not have the session's next epoch; the client then sends a full fetch again.

The number of sessions, the number of partitions in each session, and the total number of partitions
are limited. If a full fetch would exceed a limit, no session is opened (the response has session id
0), and the client continues with full fetches. If a session would exceed a limit, it ends with
FETCH_SESSION_ID_NOT_FOUND, and the client starts over.

A session never contains an unknown partition: the response to a fetch of an unknown partition
contains the error and session id 0, which closes the session.

`FetchSessionCache.begin` returns a `FetchContext` for a request. The context lists each partition
to read once; after the read, it selects the partitions for the response. This module does not
perform I/O; apis/fetch.py calls it.

Source: KIP-227; Kafka 3.9 FetchSession.scala (eviction rules, topic ids of KIP-516).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from plog.errors import (
    ErrorCode,
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpoch,
    KafkaError,
)
from plog.types import ZERO_UUID, Uuid
from plog.wire.messages.fetch import FetchPartition, FetchRequest
from plog.wire.single_fetch import SingleFetch
from plogd.fair_queue import SLICE, FairQueue, Slices
from plogd.ports import Clock, MaybeLater, Random, spawn

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
MIN_EVICTION_MS: Final = 120_000
"""A session that has been idle for longer than this is evicted for any new session.

A session that was opened longer ago, but used more recently, is evicted only for a larger session.
Kafka uses the same value.
"""
_FIRST_TOPIC_ID_VERSION = 13  # KIP-516
_MAX_EPOCH = 0x7FFFFFFF
_UNKNOWN: Final = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    )
)
_Key = tuple[str | Uuid | None, int]
_Items = dict[_Key, "FetchItem"]
"""Partitions by key. If a request repeats a partition, the last occurrence counts, as in Kafka."""


class FetchItem:
    """One partition of a fetch: the request, and the offsets last sent to the session's client.

    `topic` is None while no topic has the id.
    """

    # Mutable and slotted, because there may be a very large number of items.
    __slots__ = (
        "key",
        "request",
        "sent_high_watermark",
        "sent_log_start_offset",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: str | None, topic_id: Uuid, request: FetchPartition) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.request = request
        self.key: _Key = (topic if topic_id == ZERO_UUID else topic_id, request.partition)
        """The topic (its id if the request uses ids, otherwise its name) and the partition."""
        self.sent_high_watermark = -1
        self.sent_log_start_offset = -1


class ReadResult(Protocol):
    """The properties of a partition read that a session compares."""

    @property
    def error_code(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def is_diverging(self) -> bool: ...


class FetchSession:
    """The partitions that one consumer reads, in the order in which they are read."""

    __slots__ = ("created_ms", "epoch", "items", "last_used_ms", "session_id", "uses_topic_ids")

    def __init__(
        self, session_id: int, items: Iterable[FetchItem], *, uses_topic_ids: bool, now_ms: float
    ) -> None:
        self.session_id = session_id
        self.items = {item.key: item for item in items}
        self.uses_topic_ids = uses_topic_ids
        self.epoch = _next_epoch(INITIAL_EPOCH)
        self.created_ms = now_ms
        self.last_used_ms = now_ms

    def update(self, items: _Items, forgotten: Iterable[_Key]) -> None:
        """Apply the changes in a request; new partitions are added at the end."""
        for key, item in items.items():
            known = self.items.get(key)
            if known is None:
                self.items[key] = item
            else:
                # Only the request is replaced: the offsets sent so far decide what is new to the
                # client.
                known.request = item.request
        for key in forgotten:
            self.items.pop(key, None)


class FetchContext:
    """A fetch without a session: the response contains every partition of the request.

    After the read, call `finish`. To process a wide fetch in slices, call `check`, then
    `is_answered` for each partition in order, then `end` instead.
    """

    error: KafkaError | None = None
    """Set if the request does not match its session; the response then contains only this error."""
    session_id: int = NO_SESSION

    def __init__(self, items: Sequence[FetchItem]) -> None:
        self.items = items

    def finish(self, results: Sequence[ReadResult]) -> tuple[int, list[int]]:
        """Return the response's session id, and the indexes of the results in the response."""
        return NO_SESSION, list(range(len(results)))

    def check(self) -> None:
        """Set `error` if the request no longer matches its session."""

    def is_answered(self, item: FetchItem, result: ReadResult) -> bool:
        """Return whether the response contains this partition, and record that it does."""
        return True

    def end(self) -> int:
        """Return the response's session id."""
        return NO_SESSION


class _FullFetch(FetchContext):
    """A full fetch: the response contains every partition, and a session if there is room."""

    def __init__(
        self, items: Sequence[FetchItem], cache: FetchSessionCache, *, uses_topic_ids: bool
    ) -> None:
        super().__init__(items)
        self._cache = cache
        self._uses_topic_ids = uses_topic_ids
        self._has_unknown = False

    def finish(self, results: Sequence[ReadResult]) -> tuple[int, list[int]]:
        for item, result in zip(self.items, results, strict=True):
            self.is_answered(item, result)
        return self.end(), list(range(len(results)))

    def is_answered(self, item: FetchItem, result: ReadResult) -> bool:
        item.sent_high_watermark = result.high_watermark
        item.sent_log_start_offset = result.log_start_offset
        if result.error_code in _UNKNOWN:
            self._has_unknown = True
        return True

    def end(self) -> int:
        # If the session contained an unknown partition, the client would not request the partition
        # again, and would not notice when it is created. Until the next metadata refresh removes
        # the partition from its fetches, the client sends full fetches.
        if self._has_unknown:
            return NO_SESSION
        return self._cache.open(self.items, uses_topic_ids=self._uses_topic_ids)


class _IncrementalFetch(FetchContext):
    """An incremental fetch in a session: the response omits partitions with nothing new."""

    def __init__(self, session: FetchSession, cache: FetchSessionCache) -> None:
        super().__init__(list(session.items.values()))
        self._session = session
        self._cache = cache
        self._expected_epoch = session.epoch
        self._has_unknown = False
        self.session_id = session.session_id

    def finish(self, results: Sequence[ReadResult]) -> tuple[int, list[int]]:
        self.check()
        if self.error is not None:
            return self.session_id, []
        pairs = zip(self.items, results, strict=True)
        answered = [index for index, pair in enumerate(pairs) if self.is_answered(*pair)]
        return self.end(), answered

    def check(self) -> None:
        if self._session.epoch != self._expected_epoch:
            # The client has sent its next request without waiting for this response.
            self.error = InvalidFetchSessionEpoch()

    def is_answered(self, item: FetchItem, result: ReadResult) -> bool:
        if not _has_news(item, result):
            return False
        if result.error_code in _UNKNOWN:
            self._has_unknown = True
        items = self._session.items
        if result.nbytes and items.get(item.key) is item:
            # A partition with data moves to the end, so that all partitions are read in turn even
            # if every response is full.
            del items[item.key]
            items[item.key] = item
        return True

    def end(self) -> int:
        if not self._has_unknown:
            return self.session_id
        self._cache.close(self._session)
        return NO_SESSION


class _RefusedFetch(FetchContext):
    """A request that does not match its session: nothing is read."""

    def __init__(self, error: KafkaError) -> None:
        super().__init__(())
        self.error = error


def _has_news(item: FetchItem, result: ReadResult) -> bool:
    """Return whether `result` is new to the client, and record the offsets that are sent."""
    news = bool(result.nbytes or result.error_code or result.is_diverging)
    if item.sent_high_watermark != result.high_watermark:
        item.sent_high_watermark = result.high_watermark
        news = True
    if item.sent_log_start_offset != result.log_start_offset:
        item.sent_log_start_offset = result.log_start_offset
        news = True
    if result.error_code:
        # After the error, the client must receive the first result even if it does not contain any
        # records.
        item.sent_high_watermark = -1
    return news


def _next_epoch(epoch: int) -> int:
    # Epoch 0 would open a new session, and -1 would end this session (KIP-227).
    return 1 if epoch == _MAX_EPOCH else epoch + 1


class FetchSessionCache:
    """All open sessions: up to `max_sessions`, each with up to `max_partitions` partitions.

    Together, the sessions have up to `max_total` partitions. If there is no room, a new session
    replaces sessions that have been idle for `MIN_EVICTION_MS`. If all sessions have been used more
    recently, it replaces the smallest session that is older than this and smaller than the new
    session. Otherwise, the new session is not opened.
    """

    def __init__(
        self,
        max_sessions: int,
        *,
        max_partitions: int,
        max_total: int,
        clock: Clock,
        random: Random,
        fair_queue: FairQueue,
    ) -> None:
        self._max_sessions = max_sessions
        self._max_partitions = max_partitions
        self._max_total = max_total
        self._clock = clock
        self._random = random
        self._queue = fair_queue
        self._sessions: dict[int, FetchSession] = {}
        """Sessions by id, least recently used first."""
        self.partition_count = 0
        """Number of partitions in all sessions together."""
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def topics_in(self, session_id: int) -> set[str]:
        """Return the topics in a session; an empty set if the session is unknown."""
        session = self._sessions.get(session_id)
        items = () if session is None else session.items.values()
        return {item.topic for item in items if item.topic is not None}

    def begin(
        self,
        request: FetchRequest | SingleFetch,
        version: int,
        topic_name: Callable[[Uuid], str | None],
    ) -> MaybeLater[FetchContext]:
        """Return the context for a request, in its session if it has one."""
        uses_topic_ids = version >= _FIRST_TOPIC_ID_VERSION
        resolve = topic_name if uses_topic_ids else None
        items: _Items = {}
        if isinstance(request, SingleFetch):
            if request.partition is not None:
                name = request.topic if resolve is None else resolve(request.topic_id)
                item = FetchItem(name, request.topic_id, request.partition)
                items[item.key] = item
            return self._begin(request, items, (), uses_topic_ids)
        if _is_wide(request):
            return spawn(self._begin_wide(request, resolve))
        for topic in request.topics:
            name = topic.topic if resolve is None else resolve(topic.topic_id)
            for partition in topic.partitions:
                item = FetchItem(name, topic.topic_id, partition)
                items[item.key] = item
        forgotten = _forgotten_of(request) if request.forgotten_topics_data else ()
        return self._begin(request, items, forgotten, uses_topic_ids)

    async def _begin_wide(
        self, request: FetchRequest, resolve: Callable[[Uuid], str | None] | None
    ) -> FetchContext:
        """Process a wide request in slices, so that other requests can run between slices."""
        slices = Slices(self._queue)
        items: _Items = {}
        async for topic in slices.over(request.topics):
            name = topic.topic if resolve is None else resolve(topic.topic_id)
            async for partition in slices.over(topic.partitions):
                item = FetchItem(name, topic.topic_id, partition)
                items[item.key] = item
        forgotten: list[_Key] = []
        async for removed in slices.over(request.forgotten_topics_data):
            name_or_id = removed.topic if removed.topic_id == ZERO_UUID else removed.topic_id
            slices.spend(len(removed.partitions) // 4)
            forgotten += [(name_or_id, number) for number in removed.partitions]
        return self._begin(request, items, forgotten, resolve is not None)

    def _begin(
        self,
        request: FetchRequest | SingleFetch,
        items: _Items,
        forgotten: Sequence[_Key],
        uses_topic_ids: bool,
    ) -> FetchContext:
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            replaced = self._sessions.get(request.session_id)
            if replaced is not None:
                self.close(replaced)
            if request.session_epoch == FINAL_EPOCH:
                return FetchContext(list(items.values()))
            return _FullFetch(list(items.values()), self, uses_topic_ids=uses_topic_ids)
        session = self._sessions.get(request.session_id)
        if session is None:
            return _RefusedFetch(FetchSessionIdNotFound())
        # A request was lost or repeated, so the client's and the broker's lists can differ.
        if session.epoch != request.session_epoch:
            return _RefusedFetch(InvalidFetchSessionEpoch())
        # A session cannot change between topic names and topic ids (KIP-516).
        if session.uses_topic_ids != uses_topic_ids:
            return _RefusedFetch(FetchSessionTopicIdError())
        return self._continue(session, items, forgotten)

    def _continue(
        self, session: FetchSession, items: _Items, forgotten: Sequence[_Key]
    ) -> FetchContext:
        # `_add` inserts the session again: as the most recently used, and with its new size.
        self.close(session)
        # The usual request of a consumer that has read everything does not contain any changes.
        if items or forgotten:
            added = len(items.keys() - session.items.keys())
            if not self._has_room(len(session.items) + added):
                # The session is already closed here, so the client starts over with a full fetch.
                return _RefusedFetch(FetchSessionIdNotFound())
            session.update(items, forgotten)
            if not session.items:  # As in Kafka, a session without partitions is closed.
                return FetchContext(list(items.values()))
        session.last_used_ms = self._clock.monotonic_ms()
        self._add(session)
        # Advanced when the request starts, so that a repeated request fails instead of being read
        # twice.
        session.epoch = _next_epoch(session.epoch)
        return _IncrementalFetch(session, self)

    # -- the bounds ---------------------------------------------------------------------------

    def open(self, items: Sequence[FetchItem], *, uses_topic_ids: bool) -> int:
        """Open a session for `items`; return its id, or `NO_SESSION` if there is no room."""
        now_ms = self._clock.monotonic_ms()
        if not items or not self._make_room(len(items), now_ms):
            return NO_SESSION
        session_id = NO_SESSION
        # Random, so that a client cannot guess the ids of other clients' sessions (KIP-227).
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._random.randrange(_MAX_EPOCH)
        self._add(FetchSession(session_id, items, uses_topic_ids=uses_topic_ids, now_ms=now_ms))
        return session_id

    def close(self, session: FetchSession) -> None:
        """Close `session`; do nothing if it is already closed."""
        if self._sessions.get(session.session_id) is session:
            del self._sessions[session.session_id]
            self.partition_count -= len(session.items)

    def _add(self, session: FetchSession) -> None:
        self._sessions[session.session_id] = session
        self.partition_count += len(session.items)

    def _has_room(self, size: int) -> bool:
        return size <= self._max_partitions and self.partition_count + size <= self._max_total

    def _make_room(self, size: int, now_ms: float) -> bool:
        if size > self._max_partitions or not self._max_sessions:
            return False
        # As in Kafka's tryEvict: idle sessions first, then the smallest session that is old enough.
        while not self._fits(size):
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now_ms - oldest.last_used_ms <= MIN_EVICTION_MS:
                break
            self._evict(oldest)
        else:
            return True
        evictable = [
            session
            for session in self._sessions.values()
            if now_ms - session.created_ms > MIN_EVICTION_MS
        ]
        smallest = min(evictable, key=lambda session: len(session.items), default=None)
        if smallest is None or len(smallest.items) >= size:
            return False
        room = self._max_total - self.partition_count + len(smallest.items)
        if size > room:
            return False
        self._evict(smallest)
        return True

    def _fits(self, size: int) -> bool:
        return len(self._sessions) < self._max_sessions and self._has_room(size)

    def _evict(self, session: FetchSession) -> None:
        self.close(session)
        self.evictions += 1


def _is_wide(request: FetchRequest) -> bool:
    """Return whether the request contains more partitions than one turn processes."""
    topics, forgotten = request.topics, request.forgotten_topics_data
    # The usual fetch of a consumer of one topic, which need not be summed up.
    if len(topics) == 1 and not forgotten:
        return len(topics[0].partitions) > SLICE
    if len(topics) > SLICE or len(forgotten) > SLICE:
        return True
    count = sum(len(topic.partitions) for topic in topics)
    if forgotten:
        count += sum(len(topic.partitions) for topic in forgotten)
    return count > SLICE


def _forgotten_of(request: FetchRequest) -> list[_Key]:
    return [
        (topic.topic if topic.topic_id == ZERO_UUID else topic.topic_id, number)
        for topic in request.forgotten_topics_data
        for number in topic.partitions
    ]
