"""The client side of fetch sessions: after the first fetch, requests contain only changes.

A full fetch (epoch 0) lists all partitions, and the broker may open a session for them. Later
requests contain only new, changed and removed partitions, and responses omit unchanged partitions.
If client and broker may disagree about the session's contents, the next fetch is a full fetch,
which also closes the old session.

There is one session per node. Source: KIP-227; Kafka 3.9 FetchSessionHandler.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from plog.client.consumer.fetch_plan import WantedPartition
from plog.errors import ErrorCode
from plog.types import TopicPartition
from plog.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)

NO_SESSION: Final = 0
FULL_FETCH: Final = 0
NO_SESSION_EPOCH: Final = -1
"""The epoch of a fetch that does not open a session; it closes the session with the given id."""
FIRST_VERSION_WITH_SESSIONS: Final = 7
_MAX_EPOCH: Final = 0x7FFFFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLimits:
    """The parameters that all of a consumer's fetches share."""

    max_wait_ms: int
    min_bytes: int
    isolation_level: int
    rack_id: str


class FetchSession:
    """The fetch session with one node."""

    def __init__(self) -> None:
        self.session_id = NO_SESSION
        self.epoch = FULL_FETCH
        self._partitions: dict[TopicPartition, tuple[int, int, int]] = {}
        """The session's partitions as last sent: offset, leader epoch and maximum size."""

    def request(
        self,
        wanted: Mapping[TopicPartition, WantedPartition],
        max_bytes: int,
        limits: FetchLimits,
        *,
        version: int,
    ) -> FetchRequest:
        """Return the next request; it fetches exactly the partitions in `wanted`."""
        asked = {
            partition: (one.offset, one.leader_epoch, one.max_bytes)
            for partition, one in wanted.items()
        }
        known = self._partitions
        forgotten: Collection[TopicPartition] = ()
        # Brokers before KIP-227 do not support sessions.
        if version < FIRST_VERSION_WITH_SESSIONS:
            session_id, epoch, named = NO_SESSION, NO_SESSION_EPOCH, asked
        elif self.epoch == FULL_FETCH:
            # A full fetch that contains the old session's id makes the broker close that session.
            session_id, epoch, named = self.session_id, FULL_FETCH, asked
        else:
            session_id, epoch = self.session_id, self.epoch
            named = {one: what for one, what in asked.items() if known.get(one) != what}
            # Remove partitions that are paused, full or revoked from the session; otherwise, the
            # broker would return their records.
            forgotten = [one for one in known if one not in asked]
        self._partitions = asked
        return FetchRequest(
            max_wait_ms=limits.max_wait_ms,
            min_bytes=limits.min_bytes,
            max_bytes=max_bytes,
            isolation_level=limits.isolation_level,
            session_id=session_id,
            session_epoch=epoch,
            topics=_topics(named),
            forgotten_topics_data=[
                ForgottenTopic(topic=topic, partitions=[x.partition for x in partitions])
                for topic, partitions in _by_topic(forgotten).items()
            ],
            rack_id=limits.rack_id,
        )

    def answered(self, response: FetchResponse) -> None:
        """Update the session from the response to the last request."""
        if response.error_code:
            # FETCH_SESSION_ID_NOT_FOUND means that the broker has no session to close.
            self._start_over(close=response.error_code != ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            return
        answered = {
            TopicPartition(topic.topic, one.partition_index)
            for topic in response.responses
            for one in topic.partitions
        }
        was_full = self.epoch == FULL_FETCH
        # A full response must contain all partitions of the session. An incremental response must
        # not contain any others.
        if not answered <= self._partitions.keys() or (
            was_full and len(answered) < len(self._partitions)
        ):
            if response.session_id != NO_SESSION:
                self.session_id = response.session_id
            self._start_over(close=True)
        elif response.session_id == NO_SESSION:
            # The broker did not open a session, because its session cache is full (KIP-227).
            self._start_over(close=False)
        elif was_full:
            self.session_id, self.epoch = response.session_id, 1
        else:
            # As in Kafka, the epoch wraps around to 1, because 0 means a full fetch.
            self.epoch = 1 if self.epoch == _MAX_EPOCH else self.epoch + 1

    def failed(self) -> None:
        """Start over after a failed request, which the broker may have processed anyway."""
        self._start_over(close=True)

    def _start_over(self, *, close: bool) -> None:
        if not close:
            self.session_id = NO_SESSION
        self.epoch = FULL_FETCH
        self._partitions = {}

    def closing_request(self) -> FetchRequest | None:
        """Return the request that closes the session, or None if no session is open."""
        if self.session_id == NO_SESSION:
            return None
        return FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=0,
            isolation_level=0,
            session_id=self.session_id,
            session_epoch=NO_SESSION_EPOCH,
            topics=[],
            forgotten_topics_data=[],
        )


def _topics(asked: Mapping[TopicPartition, tuple[int, int, int]]) -> list[FetchTopic]:
    return [
        FetchTopic(
            topic=topic,
            partitions=[
                FetchPartition(
                    partition=one.partition,
                    fetch_offset=asked[one][0],
                    current_leader_epoch=asked[one][1],
                    partition_max_bytes=asked[one][2],
                )
                for one in partitions
            ],
        )
        for topic, partitions in _by_topic(asked).items()
    ]


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """Group partitions by topic, in the order of each topic's first partition."""
    topics: dict[str, list[TopicPartition]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(partition)
    return topics
