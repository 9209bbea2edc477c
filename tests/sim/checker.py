"""Check that a durable, ordered log could have produced all responses that clients received.

`History` records every send, response and poll. It raises `Anomaly` as soon as two of them cannot
both be true of a log that keeps all records that it acknowledged or returned; final.py checks the
rest at the end of the run, when everything can be read. The checker knows nothing of the broker:
world.py watches the state that an outside observer cannot see.

Anomalies have the names of Jepsen's Kafka workload where it has one; docs/reliability.md lists all
of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from plog.records.codec import Record
from plog.types import Uuid

Value: TypeAlias = bytes

VALUE_HEADER = "value"
"""The header that contains the unique value of a tombstone, whose own value is None."""


def value_of(record: Record) -> Value:
    """Return the unique value of a record."""
    if record.value is not None:
        return record.value
    return dict(record.headers).get(VALUE_HEADER) or b""


class Anomaly(Exception):
    """A violated guarantee: `name` says which one, the text gives the details."""

    def __init__(self, name: str, detail: str) -> None:
        super().__init__(detail)
        self.name = name


class PartitionKey(NamedTuple):
    """A partition of one incarnation of a topic."""

    topic_id: Uuid
    partition: int


class Origin(NamedTuple):
    """The send that wrote a value. Within a session, numbers rise in the order of sending."""

    topic: str
    partition: int
    session: str
    number: int
    batch: int
    place: int
    batch_size: int

    @property
    def is_last(self) -> bool:
        """Whether the value is the last one of its batch."""
        return self.place == self.batch_size - 1


@dataclass(slots=True)
class PartitionHistory:
    """All observations of one partition; offsets called an end are exclusive."""

    name: str
    values: dict[int, Value] = field(default_factory=dict)
    """The value that was read or acknowledged at each offset."""
    offsets: dict[Value, int] = field(default_factory=dict)
    timestamps: dict[int, int] = field(default_factory=dict)
    """The timestamps of the records that were read."""
    acknowledged: dict[int, Value] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)
    """The leader epoch of each batch that was read, by base offset."""
    lives: dict[int, int] = field(default_factory=dict)
    """The life of the broker in which a batch was appended, by base offset, where it is known."""
    life_of_epoch: dict[int, int] = field(default_factory=dict)
    acknowledged_end: int = 0
    shown_end: int = 0

    @property
    def known_end(self) -> int:
        """The offset below which no correct log may end."""
        return max(self.acknowledged_end, self.shown_end)

    def learn(self, offset: int, value: Value, how: str) -> None:
        """Record that a response or a poll shows `value` at `offset`."""
        known = self.values.setdefault(offset, value)
        if known != value:
            raise Anomaly(
                "inconsistent-offsets",
                f"{self.name} offset {offset} {how}: {value!r}, was {known!r}",
            )
        first = self.offsets.setdefault(value, offset)
        if first != offset:
            raise Anomaly("duplicate", f"{self.name}: {value!r} at {first} and, {how}, at {offset}")

    def learn_time(self, offset: int, timestamp: int) -> None:
        """Record the timestamp of the record at `offset`."""
        known = self.timestamps.setdefault(offset, timestamp)
        if known != timestamp:
            raise Anomaly(
                "inconsistent-offsets",
                f"{self.name} offset {offset}: time {timestamp}, was {known}",
            )

    def learn_epoch(self, base_offset: int, epoch: int) -> None:
        """Record the leader epoch of the batch at `base_offset`.

        No leader writes in an epoch that its log contained before it started (rule R6).
        """
        if self.epochs.setdefault(base_offset, epoch) != epoch:
            raise Anomaly("inconsistent-offsets", f"{self.name}: another epoch at {base_offset}")
        life = self.lives.get(base_offset)
        if life is not None and self.life_of_epoch.setdefault(epoch, life) != life:
            raise Anomaly(
                "epoch-reused",
                f"{self.name} offset {base_offset}: epoch {epoch} in life {life} and before",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    """One partition of a Fetch response; `known_end` was noted when the request was sent.

    `leader_epoch` is the one in the request, which the leader has compared with its own, or -1.
    """

    position: int
    known_end: int
    leader_epoch: int = -1
    records: Sequence[Record]
    epochs: Sequence[tuple[int, int]] = ()
    """Base offset and leader epoch of each batch."""
    end_offset: int = -1
    """The offset after the last batch, whose last records may have been compacted away."""
    high_watermark: int
    log_start_offset: int
    """-1 if the version of the response does not contain it."""


class Tombstone(NamedTuple):
    """When a tombstone was sent: the wall clock, and the number of jumps that it had made."""

    sent_ms: int
    jumps: int


class History:
    """Everything observed in one run."""

    def __init__(self) -> None:
        self.origins: dict[Value, Origin] = {}
        self.keys: dict[Value, bytes | None] = {}
        """The key of each record."""
        self.compacted: dict[str, int] = {}
        """The topics of which only the last record of each key is kept, with the time in ms for
        which they keep tombstones."""
        self.tombstones: dict[Value, Tombstone] = {}
        self.aborted: set[Value] = set()
        """The records of aborted transactions."""
        self.clock_jumps: list[tuple[int, int]] = []
        """The wall clock before and after each jump."""
        self.partitions: dict[PartitionKey, PartitionHistory] = {}
        self.acknowledged_count = 0
        self.polled_count = 0
        self._batches = 0

    def partition(self, key: PartitionKey) -> PartitionHistory:
        """Return the history of a partition, which may still be empty."""
        history = self.partitions.get(key)
        if history is None:
            name = f"{key.topic_id.hex()[:6]}-{key.partition}"
            history = self.partitions[key] = PartitionHistory(name)
        return history

    def known_end(
        self, key: PartitionKey, leader_epoch: int = -1, *, of_earlier_epochs: bool = False
    ) -> int:
        """Return the end below which no record may be missing from now on.

        With a single broker, it does not depend on the leader epoch in the request; see
        cluster/replicated_history.py.
        """
        return self.partition(key).known_end

    def forget(self, topic_id: Uuid) -> None:
        """Discard all knowledge of a topic, which may have been deleted."""
        for key in [key for key in self.partitions if key.topic_id == topic_id]:
            del self.partitions[key]

    # -- producers ----------------------------------------------------------------------------

    def is_compacted(self, values: Iterable[Value]) -> bool:
        """Return whether these values, all of one topic, may be removed by compaction."""
        origins = (self.origins.get(value) for value in values)
        return any(origin is not None and origin.topic in self.compacted for origin in origins)

    def sending(
        self,
        topic: str,
        partition: int,
        session: str,
        first_number: int,
        values: Sequence[Value],
        keys: Sequence[bytes | None] = (),
    ) -> None:
        """Record that a batch of `values`, each unique, is about to be sent for the first time.

        `keys` can be omitted if the topic is not compacted.
        """
        self._batches += 1
        self.keys.update(zip(values, keys, strict=False))
        for index, value in enumerate(values):
            assert value not in self.origins, "values are unique"
            self.origins[value] = Origin(
                topic, partition, session, first_number + index, self._batches, index, len(values)
            )

    def deleting(self, values: Iterable[Value], now_ms: int) -> None:
        """Record that the records with these values, which are about to be sent, are tombstones."""
        tombstone = Tombstone(now_ms, len(self.clock_jumps))
        self.tombstones.update((value, tombstone) for value in values)

    def acknowledged(
        self,
        key: PartitionKey,
        base_offset: int,
        values: Sequence[Value],
        *,
        append_time_ms: int = -1,
        life: int | None = None,
    ) -> None:
        """Record that the broker acknowledged `values`, starting at `base_offset`.

        `append_time_ms` is the timestamp that the broker set, -1 if the records kept their own;
        `life` is the life in which they were appended, if it is certain.
        """
        history = self.partition(key)
        if base_offset < 0:
            raise Anomaly("bad-answer", f"{history.name}: an ack with base offset {base_offset}")
        for offset, value in enumerate(values, base_offset):
            history.learn(offset, value, "acknowledged")
            history.acknowledged[offset] = value
            if append_time_ms >= 0:
                history.learn_time(offset, append_time_ms)
        if life is not None:
            history.lives[base_offset] = life
        history.acknowledged_end = max(history.acknowledged_end, base_offset + len(values))
        self.acknowledged_count += len(values)

    # -- consumers ----------------------------------------------------------------------------

    def polled(self, key: PartitionKey, poll: Poll) -> int:
        """Record a Fetch response; return the next position."""
        history = self.partition(key)
        self.check_end(key, poll.high_watermark, poll.known_end)
        fresh = [record for record in poll.records if record.offset >= poll.position]
        is_compacted = self.is_compacted(value_of(record) for record in poll.records)
        if poll.records and not fresh and not is_compacted:
            raise Anomaly(
                "nonmonotonic-poll",
                f"{history.name}: requested {poll.position}, got records up to "
                f"{poll.records[-1].offset}",
            )
        self._check_order(history.name, poll, fresh, may_skip=is_compacted)
        self._check_epochs(history, poll)
        for record in poll.records:
            self._check_record(history, key, record, poll.high_watermark)
        if poll.records:
            history.shown_end = max(history.shown_end, poll.records[-1].offset + 1)
        self.polled_count += len(fresh)
        # The last records of the last batch may have been compacted away.
        return max(fresh[-1].offset + 1 if fresh else poll.position, poll.end_offset)

    def _check_order(
        self, name: str, poll: Poll, fresh: Sequence[Record], *, may_skip: bool
    ) -> None:
        """Check that offsets rise, without gaps unless `may_skip`; final.py checks those."""
        if fresh and fresh[0].offset != poll.position and not may_skip:
            raise Anomaly(
                "poll-skip", f"{name}: requested {poll.position}, got {fresh[0].offset} first"
            )
        for before, record in zip(poll.records, poll.records[1:], strict=False):
            if record.offset <= before.offset:
                raise Anomaly(
                    "int-nonmonotonic-poll", f"{name}: {record.offset} after {before.offset}"
                )
            if record.offset != before.offset + 1 and not may_skip:
                raise Anomaly("int-poll-skip", f"{name}: {record.offset} after {before.offset}")

    def _check_epochs(self, history: PartitionHistory, poll: Poll) -> None:
        last_epoch = -1
        for base_offset, epoch in poll.epochs:
            if epoch < last_epoch:
                raise Anomaly(
                    "nonmonotonic-epoch",
                    f"{history.name} offset {base_offset}: {epoch} after {last_epoch}",
                )
            last_epoch = epoch
            history.learn_epoch(base_offset, epoch)

    def _check_record(
        self, history: PartitionHistory, key: PartitionKey, record: Record, high_watermark: int
    ) -> None:
        if record.offset >= high_watermark:
            raise Anomaly(
                "read-above-high-watermark",
                f"{history.name}: offset {record.offset}, high watermark {high_watermark}",
            )
        value = value_of(record)
        origin = self.origins.get(value)
        if origin is None or origin.partition != key.partition:
            raise Anomaly("phantom-read", f"{history.name} offset {record.offset}: {value!r}")
        history.learn(record.offset, value, "read")
        history.learn_time(record.offset, record.timestamp)

    def check_end(self, key: PartitionKey, end_offset: int, known_end: int) -> None:
        """Check the high watermark returned to a client that knew `known_end` when it asked."""
        if end_offset >= known_end:
            return
        history = self.partition(key)
        lost = range(end_offset, known_end)
        acknowledged = [offset for offset in lost if offset in history.acknowledged]
        name = "lost-write" if acknowledged else "high-watermark-fell"
        raise Anomaly(
            name,
            f"{history.name} ends at {end_offset}, had been known up to {known_end}; "
            f"acknowledged and missing: {acknowledged}",
        )

    def check_time(self, key: PartitionKey, asked_ms: int, offset: int, found_ms: int) -> None:
        """Check that the first record at or after `asked_ms` is at `offset`, with `found_ms`."""
        history = self.partition(key)
        timestamp = history.timestamps.get(offset, found_ms)
        if offset >= 0 and (found_ms < asked_ms or timestamp != found_ms):
            raise Anomaly(
                "wrong-time",
                f"{history.name}: requested {asked_ms}, got offset {offset} of {found_ms}, "
                f"where the record says {timestamp}",
            )
