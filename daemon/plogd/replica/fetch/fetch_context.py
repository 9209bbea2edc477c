"""The context of one fetch: its partitions, its session, and which results the response contains.

`FetchContext` is a fetch without a session. Its subclasses are the full fetch, which opens a
session, the incremental fetch, whose response omits partitions with nothing new, and the fetch that
does not match its session. fetch_sessions.py contains the open sessions, and creates the contexts.

This module does not perform I/O. Source: KIP-227; Kafka 3.9 FetchSession.scala.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from plog.errors import ErrorCode, InvalidFetchSessionEpoch, KafkaError
from plog.types import ZERO_UUID, Uuid
from plog.wire.messages.fetch import FetchPartition

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
_MAX_EPOCH: Final = 0x7FFFFFFF
_UNKNOWN: Final = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    )
)
FetchKey = tuple[str | Uuid | None, int]
FetchItems = dict[FetchKey, "FetchItem"]
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
        self.key: FetchKey = (topic if topic_id == ZERO_UUID else topic_id, request.partition)
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
    def is_urgent(self) -> bool: ...


class FetchSession:
    """The partitions that one consumer or follower reads, in the order in which they are read."""

    __slots__ = (
        "created_ms",
        "epoch",
        "is_follower",
        "items",
        "last_used_ms",
        "session_id",
        "uses_topic_ids",
    )

    def __init__(
        self,
        session_id: int,
        items: Iterable[FetchItem],
        *,
        uses_topic_ids: bool,
        is_follower: bool,
        now_ms: float,
    ) -> None:
        self.session_id = session_id
        self.is_follower = is_follower
        self.items = {item.key: item for item in items}
        self.uses_topic_ids = uses_topic_ids
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.created_ms = now_ms
        self.last_used_ms = now_ms

    def update(self, items: FetchItems, forgotten: Iterable[FetchKey]) -> None:
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


class SessionCache(Protocol):
    """The open sessions; see `FetchSessionCache`."""

    def open(self, items: Sequence[FetchItem], *, uses_topic_ids: bool, is_follower: bool) -> int:
        """Open a session for `items`; return its id, or `NO_SESSION` if there is no room."""
        ...

    def close(self, session: FetchSession) -> None:
        """Close `session`; do nothing if it is already closed."""
        ...


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


class FullFetch(FetchContext):
    """A full fetch: the response contains every partition, and a session if there is room."""

    def __init__(
        self,
        items: Sequence[FetchItem],
        cache: SessionCache,
        *,
        uses_topic_ids: bool,
        is_follower: bool,
    ) -> None:
        super().__init__(items)
        self._cache = cache
        self._uses_topic_ids = uses_topic_ids
        self._is_follower = is_follower
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
        return self._cache.open(
            self.items, uses_topic_ids=self._uses_topic_ids, is_follower=self._is_follower
        )


class IncrementalFetch(FetchContext):
    """An incremental fetch in a session: the response omits partitions with nothing new."""

    def __init__(self, session: FetchSession, cache: SessionCache) -> None:
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


class RefusedFetch(FetchContext):
    """A request that does not match its session: nothing is read."""

    def __init__(self, error: KafkaError) -> None:
        super().__init__(())
        self.error = error


def _has_news(item: FetchItem, result: ReadResult) -> bool:
    """Return whether `result` is new to the client, and record the offsets that are sent."""
    news = bool(result.nbytes or result.is_urgent)
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


def next_epoch(epoch: int) -> int:
    """Return the epoch of the request that follows the one with `epoch`."""
    # Epoch 0 would open a new session, and -1 would end this session (KIP-227).
    return 1 if epoch == _MAX_EPOCH else epoch + 1
