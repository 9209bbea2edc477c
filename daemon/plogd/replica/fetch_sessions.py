"""Fetch sessions: the broker remembers what a consumer reads, requests name only what changed.

A full fetch (epoch 0) may open a session; the following ones (epoch 1, 2, …) carry changes, and
their answers leave out partitions where nothing happened. A session is lost when it is evicted or
the client's epoch is not the next; the client then starts over with a full fetch.

`FetchSessionCache.begin` turns a request into a `FetchContext`: the partitions to read now, and,
once they were read, which of them the answer holds. Pure; called by apis/fetch.py.

Source: KIP-227; Kafka 3.9 FetchSession.scala (eviction rules, topic ids of KIP-516).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from plog.errors import (
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpoch,
    KafkaError,
)
from plog.types import ZERO_UUID, Uuid
from plog.wire.messages.fetch import FetchPartition, FetchRequest
from plogd.ports import Clock, Random

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
MIN_EVICTION_MS: Final = 120_000
"""A session younger or used more recently than this is only evicted for a reason."""
_FIRST_TOPIC_ID_VERSION = 13
_MAX_EPOCH = 0x7FFFFFFF


class FetchItem:
    """One partition of a fetch: what is asked, and what a session's client was last told.

    `topic` is None while no topic has the id. Mutable and slotted: sessions hold many.
    """

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
        self.key: tuple[str | Uuid | None, int] = (
            topic if topic_id == ZERO_UUID else topic_id,
            request.partition,
        )
        """What makes it the same partition: the id where ids are used, else the name."""
        self.sent_high_watermark = -1
        self.sent_log_start_offset = -1


class Answerable(Protocol):
    """What was read of one partition, as far as a session looks at it."""

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
    """The partitions one consumer reads, in the order they are to be read."""

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

    def update(self, items: Iterable[FetchItem], forgotten: Iterable[FetchItem]) -> None:
        """Take in what a request changes: new partitions go last."""
        for item in items:
            known = self.items.get(item.key)
            if known is None:
                self.items[item.key] = item
            else:
                known.request = item.request
        for item in forgotten:
            self.items.pop(item.key, None)


class FetchContext:
    """A fetch without a session: everything asked is read, everything read is answered."""

    error: KafkaError | None = None
    """Set when the request does not fit its session: it is all the answer says."""

    def __init__(self, items: Sequence[FetchItem]) -> None:
        self.items = items

    def finish(self, results: Sequence[Answerable]) -> tuple[int, list[int]]:
        """The session id to answer, and the indexes of the results the answer holds."""
        return NO_SESSION, list(range(len(results)))

    def finish_empty(self) -> int:
        """As `finish`, for an answer that holds nothing: its client will ask the same again."""
        return NO_SESSION


class _FullFetch(FetchContext):
    """A full fetch: everything is answered, and a session opened if there is room."""

    def __init__(
        self, items: Sequence[FetchItem], cache: FetchSessionCache, *, uses_topic_ids: bool
    ) -> None:
        super().__init__(items)
        self._cache = cache
        self._uses_topic_ids = uses_topic_ids

    def finish(self, results: Sequence[Answerable]) -> tuple[int, list[int]]:
        for item, result in zip(self.items, results, strict=True):
            item.sent_high_watermark = result.high_watermark
            item.sent_log_start_offset = result.log_start_offset
        session_id = self._cache.open(self.items, uses_topic_ids=self._uses_topic_ids)
        return session_id, list(range(len(results)))


class _IncrementalFetch(FetchContext):
    """A later fetch of a session: only partitions with something new are answered."""

    def __init__(self, session: FetchSession) -> None:
        super().__init__(list(session.items.values()))
        self._session = session
        self._expected_epoch = session.epoch

    def finish(self, results: Sequence[Answerable]) -> tuple[int, list[int]]:
        session = self._session
        self.finish_empty()
        if self.error is not None:
            return session.session_id, []
        answered: list[int] = []
        for index, (item, result) in enumerate(zip(self.items, results, strict=True)):
            if not _is_news(item, result):
                continue
            answered.append(index)
            if result.nbytes and session.items.get(item.key) is item:
                # Who got data goes last, so that a full answer does not starve the others.
                del session.items[item.key]
                session.items[item.key] = item
        return session.session_id, answered

    def finish_empty(self) -> int:
        if self._session.epoch != self._expected_epoch:
            # The client has sent the next request without waiting for this answer.
            self.error = InvalidFetchSessionEpoch()
        return self._session.session_id


class _RefusedFetch(FetchContext):
    """A request that does not fit its session: nothing is read."""

    def __init__(self, error: KafkaError) -> None:
        super().__init__(())
        self.error = error


def _is_news(item: FetchItem, result: Answerable) -> bool:
    """Whether the client has to be told, and remember what it is told."""
    news = bool(result.nbytes or result.error_code or result.is_diverging)
    if item.sent_high_watermark != result.high_watermark:
        item.sent_high_watermark = result.high_watermark
        news = True
    if item.sent_log_start_offset != result.log_start_offset:
        item.sent_log_start_offset = result.log_start_offset
        news = True
    if result.error_code:
        item.sent_high_watermark = -1  # When the error is gone, that is news.
    return news


def _next_epoch(epoch: int) -> int:
    return 1 if epoch == _MAX_EPOCH else epoch + 1


class FetchSessionCache:
    """All open sessions, at most `max_sessions`.

    A new session takes the place of one not used for `MIN_EVICTION_MS`, else of the smallest one
    that is older than that and smaller than itself, else there is none for it.
    """

    def __init__(self, max_sessions: int, *, clock: Clock, random: Random) -> None:
        self._max_sessions = max_sessions
        self._clock = clock
        self._random = random
        self._sessions: dict[int, FetchSession] = {}
        """The one used longest ago first."""
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        """Partitions remembered in all sessions together."""
        return sum(len(session.items) for session in self._sessions.values())

    def topics_in(self, session_id: int) -> set[str]:
        """The topics that this session reads; none if there is no such session."""
        session = self._sessions.get(session_id)
        items = () if session is None else session.items.values()
        return {item.topic for item in items if item.topic is not None}

    def begin(
        self, request: FetchRequest, version: int, topic_name: Callable[[Uuid], str | None]
    ) -> FetchContext:
        """What this request means, given its session if it has one."""
        uses_topic_ids = version >= _FIRST_TOPIC_ID_VERSION
        resolve = topic_name if uses_topic_ids else None
        items = _items_of(request, resolve)
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._sessions.pop(request.session_id, None)
            if request.session_epoch == FINAL_EPOCH:
                return FetchContext(items)
            return _FullFetch(items, self, uses_topic_ids=uses_topic_ids)
        session = self._sessions.get(request.session_id)
        if session is None:
            return _RefusedFetch(FetchSessionIdNotFound())
        if session.epoch != request.session_epoch:
            return _RefusedFetch(InvalidFetchSessionEpoch())
        if session.uses_topic_ids != uses_topic_ids:
            return _RefusedFetch(FetchSessionTopicIdError())
        return self._continue(session, request, items, resolve)

    def _continue(
        self,
        session: FetchSession,
        request: FetchRequest,
        items: Sequence[FetchItem],
        resolve: Callable[[Uuid], str | None] | None,
    ) -> FetchContext:
        session.update(items, _forgotten_of(request))
        del self._sessions[session.session_id]
        if not session.items:
            return FetchContext(items)
        session.last_used_ms = self._clock.monotonic_ms()
        self._sessions[session.session_id] = session
        session.epoch = _next_epoch(session.epoch)
        if resolve is not None:
            for item in session.items.values():
                if item.topic is None:
                    item.topic = resolve(item.topic_id)
        return _IncrementalFetch(session)

    def open(self, items: Sequence[FetchItem], *, uses_topic_ids: bool) -> int:
        """Open a session for `items`; its id, or `NO_SESSION` if there is no place for it."""
        now_ms = self._clock.monotonic_ms()
        if not items or not self._make_room(len(items), now_ms):
            return NO_SESSION
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._random.randrange(_MAX_EPOCH)
        self._sessions[session_id] = FetchSession(
            session_id, items, uses_topic_ids=uses_topic_ids, now_ms=now_ms
        )
        return session_id

    def _make_room(self, size: int, now_ms: float) -> bool:
        if len(self._sessions) < self._max_sessions:
            return True
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.last_used_ms > MIN_EVICTION_MS:
            return self._evict(oldest)
        evictable = [
            session
            for session in self._sessions.values()
            if now_ms - session.created_ms > MIN_EVICTION_MS
        ]
        smallest = min(evictable, key=lambda session: len(session.items), default=None)
        if smallest is None or len(smallest.items) >= size:
            return False
        return self._evict(smallest)

    def _evict(self, session: FetchSession) -> bool:
        del self._sessions[session.session_id]
        self.evictions += 1
        return True


def _items_of(
    request: FetchRequest, resolve: Callable[[Uuid], str | None] | None
) -> list[FetchItem]:
    items: list[FetchItem] = []
    for topic in request.topics:
        name = topic.topic if resolve is None else resolve(topic.topic_id)
        items += [FetchItem(name, topic.topic_id, partition) for partition in topic.partitions]
    return items


def _forgotten_of(request: FetchRequest) -> list[FetchItem]:
    return [
        FetchItem(topic.topic, topic.topic_id, FetchPartition(partition=number))
        for topic in request.forgotten_topics_data
        for number in topic.partitions
    ]
