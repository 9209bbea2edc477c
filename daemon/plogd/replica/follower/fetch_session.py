"""A follower's fetch session with a leader: after the first fetch, requests contain only changes.

A fetcher follows thousands of partitions, most of which have no new records. Source: KIP-227; Kafka
3.9 FetchSessionHandler.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from plog.errors import ErrorCode
from plog.types import Uuid
from plog.wire.messages.fetch import FetchPartition, FetchResponse, FetchTopic, ForgottenTopic

_FULL_FETCH: Final = 0
_NO_SESSION: Final = 0
_MAX_EPOCH: Final = 0x7FFFFFFF


class Position(NamedTuple):
    """What a follower requests of one partition."""

    offset: int
    leader_epoch: int
    last_fetched_epoch: int
    log_start_offset: int


Key = tuple[Uuid, int]
"""Topic id and partition number."""


class FollowerSession:
    """The fetch session of one fetcher. Each request must be followed by `answered` or `failed`."""

    def __init__(self, partition_max_bytes: int) -> None:
        self._max_bytes = partition_max_bytes
        self.session_id = _NO_SESSION
        self.epoch = _FULL_FETCH
        self._sent: dict[Key, Position] = {}
        """The partitions in the session, as they were last sent."""

    def changes(
        self, wanted: Mapping[Key, Position]
    ) -> tuple[list[FetchTopic], list[ForgottenTopic]]:
        """Return the elements of the next request, which fetches the partitions in `wanted`."""
        sent, self._sent = self._sent, dict(wanted)
        if self.epoch == _FULL_FETCH:
            return self._topics(wanted, wanted), []
        changed = [key for key, position in wanted.items() if sent.get(key) != position]
        removed = [key for key in sent if key not in wanted]
        forgotten = [
            ForgottenTopic(topic_id=topic_id, partitions=numbers)
            for topic_id, numbers in _by_topic(removed).items()
        ]
        return self._topics(wanted, changed), forgotten

    def _topics(self, wanted: Mapping[Key, Position], keys: Iterable[Key]) -> list[FetchTopic]:
        return [
            FetchTopic(
                topic_id=topic_id,
                partitions=[
                    self._partition(number, wanted[topic_id, number]) for number in numbers
                ],
            )
            for topic_id, numbers in _by_topic(keys).items()
        ]

    def _partition(self, number: int, position: Position) -> FetchPartition:
        return FetchPartition(
            partition=number,
            current_leader_epoch=position.leader_epoch,
            fetch_offset=position.offset,
            last_fetched_epoch=position.last_fetched_epoch,
            log_start_offset=position.log_start_offset,
            partition_max_bytes=self._max_bytes,
        )

    def answered(self, response: FetchResponse) -> None:
        """Update the session from the response to the last request."""
        if response.error_code:
            # A full fetch with the id of the old session makes the leader close that session.
            is_unknown = response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            self._start_over(_NO_SESSION if is_unknown else self.session_id)
        elif response.session_id == _NO_SESSION:  # The leader has no room for the session.
            self._start_over(_NO_SESSION)
        else:
            self.session_id = response.session_id
            self.epoch = 1 if self.epoch == _MAX_EPOCH else self.epoch + 1

    def failed(self) -> None:
        """Start over after a failed request, which the leader may have processed anyway."""
        self._start_over(self.session_id)

    def _start_over(self, session_id: int) -> None:
        self.session_id, self.epoch, self._sent = session_id, _FULL_FETCH, {}


def _by_topic(keys: Iterable[Key]) -> dict[Uuid, list[int]]:
    topics: dict[Uuid, list[int]] = {}
    for topic_id, number in keys:
        topics.setdefault(topic_id, []).append(number)
    return topics
