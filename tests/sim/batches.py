"""Record batches of unique values, Produce requests for them, and the matching of responses.

Every record's value is unique, so that each record read can be traced to the send that wrote it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from typing import TYPE_CHECKING

from plog.records.batch import Compression
from plog.records.builder import build_batch
from plog.records.codec import Record
from plog.types import Uuid
from plog.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.sim.checker import VALUE_HEADER, Anomaly, History, PartitionKey, value_of
from tests.sim.topics import Sight

if TYPE_CHECKING:
    from tests.sim.world import World

FIRST_ZSTD_VERSION = 7
FIRST_TOPIC_ID_VERSION = 13
TIMEOUT_MS = 30_000
_BACK_IN_TIME_MS = 5_000
_KEYS = 300
_HOT_KEY = b"k0"
_TOMBSTONES = 0.25
"""The share of tombstones among the records of compacted topics."""


@dataclass(slots=True, eq=False)
class Batch:
    """Records of one partition, with unique values."""

    topic: str
    topic_id: Uuid
    partition: int
    values: Sequence[bytes]
    data: bytes
    min_version: int = 3
    """The versions of Produce that may carry its codec."""
    producer_id: int = -1
    first_sent_in_life: int | None = None
    attempts: int = 0
    """How often it has been sent."""
    is_appended: bool = False
    """A broker has, or may have, appended it but not acknowledged it."""
    is_acknowledged: bool = False

    @property
    def key(self) -> PartitionKey:
        """The partition that the batch is written to."""
        return PartitionKey(self.topic_id, self.partition)


class Values:
    """The values of one session of a producer, numbered in the order of creation.

    With `single`, each batch has a single record, whose key other producers use often.
    """

    def __init__(
        self, world: World, session: str, chance: random.Random, *, single: bool = False
    ) -> None:
        self._world = world
        self._single = single
        self._session = session
        self._chance = chance
        self._number = 0

    @property
    def next_sequence(self) -> int:
        """Return the next record's sequence number; the session writes to one partition."""
        return self._number

    def batch(
        self,
        sight: Sight,
        topic: str,
        partition: int,
        producer_id: int = -1,
        producer_epoch: int = -1,
    ) -> Batch:
        """Return a new batch of one to eight records, with a random codec."""
        chance = self._chance
        first = self._number
        self._number += 1 if self._single else chance.choice((1, 1, 2, 3, 8))
        padding = b"." * chance.choice((0, 10, 60, 120))
        values = [
            b"%s/%d/%s" % (self._session.encode(), number, padding)
            for number in range(first, self._number)
        ]
        now_ms = self._world.clock.now_ms()
        records = [
            Record(
                timestamp=now_ms - chance.randrange(_BACK_IN_TIME_MS),
                key=_HOT_KEY if self._single else random_key(chance),
                value=value,
                headers=(("h", b"1"),) if chance.random() < 0.2 else (),
            )
            for value in values
        ]
        if topic in self._world.history.compacted:
            records = with_tombstones(records, self._world.history, chance, now_ms=now_ms)
        codec = chance.choice(list(Compression))
        data = build_batch(
            records,
            compression=codec,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=first if producer_id >= 0 else -1,
        )
        keys = [record.key for record in records]
        self._world.history.sending(topic, partition, self._session, first, values, keys)
        min_version = FIRST_ZSTD_VERSION if codec is Compression.ZSTD else 3
        return Batch(topic, sight.topic_id, partition, values, data, min_version, producer_id)


def random_key(chance: random.Random) -> bytes:
    """Return a key; a few keys occur often, and the others rarely."""
    # A lost record is noticed only if no later record has its key.
    return b"k%d" % (_KEYS * chance.random() ** 4)


def with_tombstones(
    records: Sequence[Record], history: History, chance: random.Random, *, now_ms: int
) -> list[Record]:
    """Return the records, some of which delete their keys instead."""
    deleted = [chance.random() < _TOMBSTONES for _ in records]
    values = [value_of(record) for record in records]
    history.deleting(compress(values, deleted), now_ms)
    return [
        record._replace(value=None, headers=((VALUE_HEADER, record.value),))
        if is_deleted
        else record
        for record, is_deleted in zip(records, deleted, strict=True)
    ]


def produce_request(batches: Sequence[Batch], acks: int) -> ProduceRequest:
    """Return one request that contains batches of different partitions."""
    topics: dict[str, TopicProduceData] = {}
    for batch in batches:
        topic = topics.get(batch.topic)
        if topic is None:
            topic = topics[batch.topic] = TopicProduceData(
                name=batch.topic, topic_id=batch.topic_id, partition_data=[]
            )
        data = PartitionProduceData(index=batch.partition, records=batch.data)
        topic.partition_data.append(data)
    return ProduceRequest(acks=acks, timeout_ms=TIMEOUT_MS, topic_data=list(topics.values()))


def match_results(
    answer: ProduceResponse, batches: Sequence[Batch], *, by_id: bool
) -> list[tuple[Batch, PartitionProduceResponse]]:
    """Return each batch with its result in the response."""
    results = {
        (topic.topic_id if by_id else topic.name, result.index): result
        for topic in answer.responses
        for result in topic.partition_responses
    }
    wanted = {(batch.topic_id if by_id else batch.topic, batch.partition) for batch in batches}
    if set(results) != wanted:
        raise Anomaly("bad-answer", f"Produce to {sorted(map(str, wanted))} got {answer!r:.300}")
    return [
        (batch, results[(batch.topic_id if by_id else batch.topic, batch.partition)])
        for batch in batches
    ]
