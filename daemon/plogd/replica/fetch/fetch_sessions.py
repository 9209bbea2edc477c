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

from collections.abc import Callable, Sequence
from typing import Final

from plog.errors import (
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpoch,
)
from plog.types import ZERO_UUID, Uuid
from plog.wire.messages.fetch import FetchRequest
from plog.wire.single_fetch import SingleFetch
from plogd.fair_queue import SLICE, FairQueue, Slices
from plogd.ports import Clock, MaybeLater, Random, spawn
from plogd.replica.fetch.fetch_context import (
    INITIAL_EPOCH,
    NO_SESSION,
    FetchContext,
    FetchItem,
    FetchItems,
    FetchKey,
    FetchSession,
    FullFetch,
    IncrementalFetch,
    RefusedFetch,
    next_epoch,
)

FINAL_EPOCH: Final = -1
MIN_EVICTION_MS: Final = 120_000
"""A session that has been idle for longer than this is evicted for any new session.

A session that was opened longer ago, but used more recently, is evicted only for a larger session.
Kafka uses the same value.
"""
_FIRST_TOPIC_ID_VERSION = 13  # KIP-516
_MAX_SESSION_ID = 0x7FFFFFFF


class FetchSessionCache:
    """All open sessions: up to `max_sessions`, each with up to `max_partitions` partitions.

    Together, the sessions have up to `max_total` partitions. If there is no room, a new session
    replaces sessions that have been idle for `MIN_EVICTION_MS`. If all sessions have been used more
    recently, it replaces the smallest session that is older than this and smaller than the new
    session; sessions of followers count as larger than those of consumers. Otherwise, the new
    session is not opened.
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
        items: FetchItems = {}
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
        items: FetchItems = {}
        async for topic in slices.over(request.topics):
            name = topic.topic if resolve is None else resolve(topic.topic_id)
            async for partition in slices.over(topic.partitions):
                item = FetchItem(name, topic.topic_id, partition)
                items[item.key] = item
        forgotten: list[FetchKey] = []
        async for removed in slices.over(request.forgotten_topics_data):
            name_or_id = removed.topic if removed.topic_id == ZERO_UUID else removed.topic_id
            slices.spend(len(removed.partitions) // 4)
            forgotten += [(name_or_id, number) for number in removed.partitions]
        return self._begin(request, items, forgotten, resolve is not None)

    def _begin(
        self,
        request: FetchRequest | SingleFetch,
        items: FetchItems,
        forgotten: Sequence[FetchKey],
        uses_topic_ids: bool,
    ) -> FetchContext:
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            replaced = self._sessions.get(request.session_id)
            if replaced is not None:
                self.close(replaced)
            if request.session_epoch == FINAL_EPOCH:
                return FetchContext(list(items.values()))
            return FullFetch(
                list(items.values()),
                self,
                uses_topic_ids=uses_topic_ids,
                is_follower=_is_from_follower(request),
            )
        session = self._sessions.get(request.session_id)
        if session is None:
            return RefusedFetch(FetchSessionIdNotFound())
        # A request was lost or repeated, so the client's and the broker's lists can differ.
        if session.epoch != request.session_epoch:
            return RefusedFetch(InvalidFetchSessionEpoch())
        # A session cannot change between topic names and topic ids (KIP-516).
        if session.uses_topic_ids != uses_topic_ids:
            return RefusedFetch(FetchSessionTopicIdError())
        return self._continue(session, items, forgotten)

    def _continue(
        self, session: FetchSession, items: FetchItems, forgotten: Sequence[FetchKey]
    ) -> FetchContext:
        # `_add` inserts the session again: as the most recently used, and with its new size.
        self.close(session)
        # The usual request of a consumer that has read everything does not contain any changes.
        if items or forgotten:
            added = len(items.keys() - session.items.keys())
            if not self._has_room(len(session.items) + added):
                # The session is already closed here, so the client starts over with a full fetch.
                return RefusedFetch(FetchSessionIdNotFound())
            session.update(items, forgotten)
            if not session.items:  # As in Kafka, a session without partitions is closed.
                return FetchContext(list(items.values()))
        session.last_used_ms = self._clock.monotonic_ms()
        self._add(session)
        # Advanced when the request starts, so that a repeated request fails instead of being read
        # twice.
        session.epoch = next_epoch(session.epoch)
        return IncrementalFetch(session, self)

    # -- the bounds ---------------------------------------------------------------------------

    def open(self, items: Sequence[FetchItem], *, uses_topic_ids: bool, is_follower: bool) -> int:
        """Open a session for `items`; return its id, or `NO_SESSION` if there is no room."""
        now_ms = self._clock.monotonic_ms()
        if not items or not self._make_room(len(items), is_follower, now_ms):
            return NO_SESSION
        session_id = NO_SESSION
        # Random, so that a client cannot guess the ids of other clients' sessions (KIP-227).
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._random.randrange(_MAX_SESSION_ID)
        self._add(
            FetchSession(
                session_id,
                items,
                uses_topic_ids=uses_topic_ids,
                is_follower=is_follower,
                now_ms=now_ms,
            )
        )
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

    def _make_room(self, size: int, is_follower: bool, now_ms: float) -> bool:
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
        # As in Kafka, followers first: one without a session lists all its partitions in every
        # request.
        smallest = min(evictable, key=_value_of, default=None)
        if smallest is None or _value_of(smallest) >= (is_follower, size):
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


def _value_of(session: FetchSession) -> tuple[bool, int]:
    """Return the value of a session: a session is evicted for one with a higher value."""
    return session.is_follower, len(session.items)


def _is_from_follower(request: FetchRequest | SingleFetch) -> bool:
    # The field of the other versions has its default value.
    return not isinstance(request, SingleFetch) and (
        request.replica_id >= 0 or request.replica_state.replica_id >= 0
    )


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


def _forgotten_of(request: FetchRequest) -> list[FetchKey]:
    return [
        (topic.topic if topic.topic_id == ZERO_UUID else topic.topic_id, number)
        for topic in request.forgotten_topics_data
        for number in topic.partitions
    ]
