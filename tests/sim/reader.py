"""The base of all reading clients: one fetch of a session, one offset lookup, both checked.

consumers.py follows partitions with it; final.py reads everything at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from plog.errors import PlogError
from plog.records.batch import iter_batches
from plog.records.codec import Record
from plog.records.reader import iter_records
from plog.types import Uuid
from plog.wire.api_keys import ApiKey
from plog.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from plog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tests.sim.checker import Anomaly, PartitionKey, Poll
from tests.sim.client import PASSING_ERRORS, Client, check_code

FIRST_TOPIC_ID_VERSION = 13
FIRST_SESSION_VERSION = 7
FIRST_ZSTD_VERSION = 10
EARLIEST, LATEST, MAX_TIMESTAMP = -2, -1, -3


class Assigned(NamedTuple):
    """A partition that a consumer reads."""

    topic: str
    topic_id: Uuid
    partition: int
    leader_epoch: int = -1
    """The leader epoch in the reader's metadata, which a broker compares with its own."""

    @property
    def key(self) -> PartitionKey:
        """The partition's key in the history."""
        return PartitionKey(self.topic_id, self.partition)


@dataclass(slots=True)
class Session:
    """The last request sent over one connection, in one version."""

    version: int
    session_id: int = 0
    epoch: int = 0
    positions: dict[Assigned, int] = field(default_factory=dict)

    @property
    def by_id(self) -> bool:
        """Whether this version identifies topics by id."""
        return self.version >= FIRST_TOPIC_ID_VERSION

    def answered(self, session_id: int) -> None:
        """Record the session id in the response; 0 if the broker has no room for the session."""
        self.session_id = session_id
        self.epoch = self.epoch + 1 if session_id else 0


class Found(NamedTuple):
    """An offset found by ListOffsets, with its timestamp."""

    timestamp: int
    offset: int


class Reader(Client):
    """A client that fetches records and looks up offsets."""

    async def list_offset(self, assigned: Assigned, timestamp: int) -> Found | None:
        """Return the offset for a timestamp or a special value; None for a retriable error."""
        await self.connected()
        version = self.version(ApiKey.LIST_OFFSETS, 7 if timestamp == MAX_TIMESTAMP else 1)
        partition = ListOffsetsPartition(
            partition_index=assigned.partition,
            current_leader_epoch=assigned.leader_epoch,
            timestamp=timestamp,
        )
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=[ListOffsetsTopic(name=assigned.topic, partitions=[partition])],
        )
        answer = await self.ask(request, version, ListOffsetsResponse)
        result = answer.topics[0].partitions[0]
        if result.error_code:
            check_code(result.error_code, f"ListOffsets of {assigned.topic}", PASSING_ERRORS)
            return None
        return Found(result.timestamp, result.offset)

    async def end_offset(self, assigned: Assigned) -> int | None:
        """Return the high watermark; check that it is not less than the known end."""
        history = self.world.history
        known_end = history.known_end(assigned.key, assigned.leader_epoch, of_earlier_epochs=True)
        found = await self.list_offset(assigned, LATEST)
        if found is None:
            return None
        history.check_end(assigned.key, found.offset, known_end)
        return found.offset

    def take(
        self, assigned: Assigned, data: PartitionData, position: int, known_end: int
    ) -> tuple[Sequence[Record], int]:
        """Check one partition of a response; return its records and the next position."""
        try:
            batches = received(data)
            records = list(iter_records(batches))
            headers = [header for _, header in iter_batches(batches)]
        except PlogError as error:
            raise Anomaly("corrupt-read", f"{assigned.topic} at {position}: {error}") from error
        poll = Poll(
            position=position,
            known_end=known_end,
            leader_epoch=assigned.leader_epoch,
            records=records,
            epochs=[(one.base_offset, one.partition_leader_epoch) for one in headers],
            end_offset=headers[-1].next_offset if headers else position,
            high_watermark=data.high_watermark,
            log_start_offset=data.log_start_offset,
        )
        return records, self.world.history.polled(assigned.key, poll)

    def fetch_request(
        self, session: Session, positions: Mapping[Assigned, int], max_wait_ms: int
    ) -> FetchRequest:
        """Return a session's next fetch: all positions at first, then only changes."""
        chance = self.chance
        changed = {
            assigned: position
            for assigned, position in positions.items()
            if not session.epoch or session.positions.get(assigned) != position
        }
        forgotten = [assigned for assigned in session.positions if assigned not in positions]
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=chance.choice((1, 1, 1, 200, 5000)),
            max_bytes=chance.choice((1, 500, 4000, 1 << 20)),
            topics=_topics_of(changed, chance.choice((1, 300, 3000, 1 << 20))),
        )
        if session.version >= FIRST_SESSION_VERSION:
            request.session_id, request.session_epoch = session.session_id, session.epoch
            request.forgotten_topics_data = _forgotten_topics(forgotten) if session.epoch else []
        session.positions = dict(positions)
        return request


def received(data: PartitionData) -> memoryview | bytes:
    """Return the records of a response; a client never receives a file region."""
    records = data.records
    assert records is None or isinstance(records, bytes | memoryview)
    return b"" if records is None else records


def match_partitions(
    answer: FetchResponse, requested: Iterable[Assigned], *, by_id: bool
) -> dict[Assigned, PartitionData]:
    """Return the partitions of a response by the requested ones; each at most once."""
    by_key = {
        (assigned.topic_id if by_id else assigned.topic, assigned.partition): assigned
        for assigned in requested
    }
    found: dict[Assigned, PartitionData] = {}
    for topic in answer.responses:
        for data in topic.partitions:
            assigned = by_key.get((topic.topic_id if by_id else topic.topic, data.partition_index))
            if assigned is None or assigned in found:
                raise Anomaly("bad-answer", f"Fetch answers {topic.topic}-{data.partition_index}")
            found[assigned] = data
    return found


def _topics_of(positions: Mapping[Assigned, int], max_bytes: int) -> list[FetchTopic]:
    topics: dict[Uuid, FetchTopic] = {}
    for assigned, position in positions.items():
        topic = topics.setdefault(
            assigned.topic_id,
            FetchTopic(topic=assigned.topic, topic_id=assigned.topic_id, partitions=[]),
        )
        topic.partitions.append(
            FetchPartition(
                partition=assigned.partition,
                current_leader_epoch=assigned.leader_epoch,
                fetch_offset=position,
                partition_max_bytes=max_bytes,
            )
        )
    return list(topics.values())


def _forgotten_topics(assigned: Sequence[Assigned]) -> list[ForgottenTopic]:
    return [
        ForgottenTopic(topic=one.topic, topic_id=one.topic_id, partitions=[one.partition])
        for one in assigned
    ]
