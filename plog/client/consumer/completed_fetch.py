"""What one fetch brought of one partition: split into batches at once, into records when taken.

Whoever consumes decodes, a batch at a time, in its own thread: a fetch costs the engine only a look
at the batches' headers. Without deserializers a batch becomes records in one call of the codec.
`next_offset` is what the partition's position becomes when what was taken has been handed out; it
also moves over what is not handed out: control batches, aborted transactions, compacted offsets.

Pure. A batch that is damaged raises `CorruptRecords`, after all before it has been taken.
Source: Kafka 3.9 CompletedFetch; KIP-98 (read_committed); KIP-74 (partial batches).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from plog.client.consumer.aborted_transactions import AbortedTransactions
from plog.client.errors import CorruptRecords, SerializationFailed
from plog.client.values import ConsumerRecord
from plog.errors import KafkaError, PlogError, UnsupportedForMessageFormat
from plog.records.batch import BatchHeader, Buffer, CorruptBatch, crc_is_valid, iter_batches
from plog.records.codec import decode_consumer_records
from plog.records.columns import decode_columns
from plog.records.legacy import upgrade_all
from plog.records.reader import read_payload
from plog.records.record_columns import RecordColumns
from plog.types import TopicPartition
from plog.wire.messages.fetch import AbortedTransaction

Deserialize: TypeAlias = Callable[[bytes], Any]
"""Bytes to what the application wants. Never asked about a null, which stays None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingRules:
    """What holds for all that a consumer reads."""

    check_crcs: bool = True
    read_committed: bool = False
    deserialize_key: Deserialize | None = None
    deserialize_value: Deserialize | None = None


class ColumnRun(NamedTuple):
    """Rows of `RecordColumns` that stem from one batch, and what they have in common."""

    partition: TopicPartition
    timestamp_type: int
    leader_epoch: int
    rows: int


class FetchedBatches(NamedTuple):
    """The whole batches in the bytes of a fetch, and what ended them if that was an error."""

    data: Buffer
    batches: list[tuple[int, BatchHeader]]
    """Where in `data` each one lies."""
    error: KafkaError | None
    next_offset: int
    """Behind the last of them; where they were to begin, if there are none."""


def split_batches(partition: TopicPartition, fetch_offset: int, data: Buffer) -> FetchedBatches:
    """The batches in `data` with anything at or behind `fetch_offset`.

    What Kafka has kept in its oldest formats is made into such batches first.
    """
    try:
        return _split(partition, fetch_offset, data)
    except UnsupportedForMessageFormat:
        pass
    try:
        modern = b"".join(upgrade_all(data))
    except KafkaError as reason:
        error = _no_batches(partition, fetch_offset, reason.message)
        return FetchedBatches(data, [], error, fetch_offset)
    return _split(partition, fetch_offset, modern)


def _split(partition: TopicPartition, fetch_offset: int, data: Buffer) -> FetchedBatches:
    batches: list[tuple[int, BatchHeader]] = []
    next_offset = fetch_offset
    error: KafkaError | None = None
    try:
        for position, header in iter_batches(data):
            previous = batches[-1][1].base_offset if batches else -1
            if header.base_offset <= previous or header.last_offset_delta < 0:
                raise CorruptBatch(f"the batch at byte {position} is out of order")
            if not batches and header.last_offset < fetch_offset:
                # It lies in front of what was asked for, if it does not lie about that.
                if not crc_is_valid(data, position, header):
                    raise CorruptBatch(f"the batch at byte {position} fails its checksum")
                continue
            batches.append((position, header))
            next_offset = max(next_offset, header.next_offset)
    except UnsupportedForMessageFormat:
        raise
    except KafkaError as reason:
        error = _no_batches(partition, next_offset, reason.message)
    else:
        if next_offset == fetch_offset and len(data):
            error = _no_batches(partition, next_offset, f"{len(data)} bytes without a whole one")
    return FetchedBatches(data, batches, error, next_offset)


def _no_batches(partition: TopicPartition, offset: int, why: str) -> CorruptRecords:
    return CorruptRecords(
        f"{partition}, offset {offset}: the broker sent what is no record batch ({why}); it will "
        f"be asked again. If this stays so, seek to an offset behind the damage, {offset + 1} or "
        "more",
        partition,
        offset,
    )


class CompletedFetch:
    """See the module's text. After it was made, only the consuming thread may touch it."""

    __slots__ = (
        "_aborted",
        "_batches",
        "_data",
        "_end_error",
        "_error",
        "_header",
        "_index",
        "_payload",
        "_ready",
        "_rules",
        "_start",
        "leader_epoch",
        "next_offset",
        "partition",
        "size_bytes",
    )

    def __init__(
        self,
        partition: TopicPartition,
        fetch_offset: int,
        split: FetchedBatches,
        rules: ReadingRules,
        aborted: Sequence[AbortedTransaction] = (),
    ) -> None:
        self.partition = partition
        self.next_offset = fetch_offset
        self.leader_epoch = -1
        """Of the last batch that something was taken from; -1 if there is none."""
        self.size_bytes = len(split.data)
        self._data = split.data
        self._rules = rules
        self._aborted = AbortedTransactions(aborted) if rules.read_committed else None
        self._batches = split.batches
        self._end_error = split.error
        self._index = 0
        """The batch to open next."""
        self._header: BatchHeader | None = None
        """That of the open batch; its records in `_payload`, then in `_ready` from `_start` on."""
        self._payload = b""
        self._ready: list[ConsumerRecord] | None = None
        self._start = 0
        self._error: PlogError | None = None

    @property
    def is_done(self) -> bool:
        """Whether there is nothing more to come, not even an error."""
        return (
            self._header is None
            and self._index == len(self._batches)
            and self._error is None
            and self._end_error is None
        )

    @property
    def ends_damaged(self) -> bool:
        """Whether it ends in bytes that are no batch."""
        return self._end_error is not None

    def take(self, wanted: int) -> list[ConsumerRecord]:
        """Up to `wanted` records, fewer only if there are no more.

        Raises CorruptRecords or SerializationFailed if there is no record before the damage.
        """
        taken: list[ConsumerRecord] = []
        while len(taken) < wanted and (self._header is not None or self._open_next()):
            ready = self._ready
            if ready is None and (ready := self._decode()) is None:
                break
            end = self._start + wanted - len(taken)
            part = ready if not self._start and end >= len(ready) else ready[self._start : end]
            self._start += len(part)
            if part:
                self.next_offset = part[-1].offset + 1
                if taken:
                    taken += part
                else:
                    taken = part
            if self._start == len(ready):
                self._ready, self._start = [], 0  # `part` may be all of it, and is the caller's.
                if self._error is not None:
                    break  # `next_offset` stays at the record that nobody can read.
                self._close_batch()
        self._raise_if_nothing(taken)
        return taken

    def take_columns(self, columns: RecordColumns, wanted: int) -> list[ColumnRun]:
        """As `take`, into `columns`; deserializers are not applied. Returns what was added."""
        runs: list[ColumnRun] = []
        left = wanted
        # What a `take` has made ready is left: from `next_offset` on it is decoded again.
        self._ready, self._start = None, 0
        if isinstance(self._error, SerializationFailed):
            self._error = None
        while left and not columns.is_full and (self._header is not None or self._open_next()):
            header, rows = self._header, len(columns)
            assert header is not None
            try:
                next_offset = decode_columns(
                    self._payload, header, columns, from_offset=self.next_offset, max_rows=left
                )
            except KafkaError as reason:
                self._error = self._damaged(header, reason.message)
                break
            added = len(columns) - rows
            left -= added
            if added:
                self.leader_epoch = header.partition_leader_epoch
                run = (header.timestamp_type, self.leader_epoch, added)
                runs.append(ColumnRun(self.partition, *run))
            self.next_offset = next_offset
            if next_offset >= header.next_offset:
                self._close_batch()
        self._raise_if_nothing(runs)
        return runs

    def _raise_if_nothing(self, taken: Sequence[object]) -> None:
        if taken:
            return
        error = self._error
        if error is None and self._index == len(self._batches):
            error = self._end_error
        if error is not None:
            raise error

    def _open_next(self) -> bool:
        """Open the next batch that has records to give; False if there is none, or an error."""
        while self._error is None and self._index < len(self._batches):
            position, header = self._batches[self._index]
            self._index += 1
            try:
                if self._rules.check_crcs and not crc_is_valid(self._data, position, header):
                    raise CorruptBatch("it fails its checksum")
                if not self._is_hidden(position, header):
                    self._payload = read_payload(self._data, position, header)
                    self._header = header
                    return True
            except KafkaError as reason:
                self._error = self._damaged(header, reason.message)
                return False
            self.next_offset = max(self.next_offset, header.next_offset)
        return False

    def _is_hidden(self, position: int, header: BatchHeader) -> bool:
        """Whether none of the batch's records are for the application."""
        is_aborted = self._aborted is not None and self._aborted.covers(
            self._data, position, header
        )
        return is_aborted or header.is_control or not header.records_count

    def _close_batch(self) -> None:
        assert self._header is not None
        self.next_offset = max(self.next_offset, self._header.next_offset)
        self._header, self._ready, self._payload, self._start = None, None, b"", 0

    def _decode(self) -> list[ConsumerRecord] | None:
        """The open batch's records from `next_offset` on; None for an error."""
        header = self._header
        assert header is not None
        if self._error is not None:
            return None
        topic, partition = self.partition
        try:
            ready = decode_consumer_records(self._payload, header, ConsumerRecord, topic, partition)
        except KafkaError as reason:
            self._error = self._damaged(header, reason.message)
            return None
        if ready and ready[0].offset < self.next_offset:
            ready = [record for record in ready if record.offset >= self.next_offset]
        self.leader_epoch = header.partition_leader_epoch
        rules = self._rules
        if rules.deserialize_key is not None or rules.deserialize_value is not None:
            ready = self._deserialize(ready)
        self._ready, self._start = ready, 0
        return ready

    def _deserialize(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        """Their keys and values as objects, up to the first one that has none."""
        to_key, to_value = self._rules.deserialize_key, self._rules.deserialize_value
        new = tuple.__new__
        done: list[ConsumerRecord] = []
        for record in records:
            topic, partition, offset, timestamp, kind, key, value, headers, epoch = record
            part = "key"
            try:
                if key is not None and to_key is not None:
                    key = to_key(key)
                part = "value"
                if value is not None and to_value is not None:
                    value = to_value(value)
            except Exception as reason:
                self._error = _unreadable(self.partition, offset, part, reason)
                self._error.__cause__ = reason
                break
            fields = (topic, partition, offset, timestamp, kind, key, value, headers, epoch)
            done.append(new(ConsumerRecord, fields))
        return done

    def _damaged(self, header: BatchHeader, why: str) -> CorruptRecords:
        """What to raise for a batch that cannot be read; naming the offset to step over."""
        last = header.last_offset
        if self._index < len(self._batches):
            # Its own word for where it ends is as doubtful as the rest; the next one's is better.
            _, following = self._batches[self._index]
            last = min(last, following.base_offset - 1)
        last = max(last, self.next_offset)
        return CorruptRecords(
            f"{self.partition}, offsets {self.next_offset} to {last} cannot be read: {why}. "
            f"It will be asked for again; seek to {last + 1} to leave it out",
            self.partition,
            last,
        )


def _unreadable(
    partition: TopicPartition, offset: int, part: str, reason: Exception
) -> SerializationFailed:
    return SerializationFailed(
        f"{partition}, offset {offset}: the deserializer of the {part} raised "
        f"{type(reason).__name__}: {reason}. Seek to {offset + 1} to leave the record out",
        partition,
        offset,
    )
