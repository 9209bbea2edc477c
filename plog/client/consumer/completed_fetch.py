"""The fetched records of one partition, split into batches on arrival and decoded when taken.

The engine reads only the batch headers; the consuming thread decodes the records, one batch at a
time. `next_offset` is the position after the records that were taken. It also moves past offsets
without visible records: control batches, aborted transactions and compacted offsets.

A corrupt batch raises `CorruptRecords` after all records before it have been taken. Source: Kafka
3.9 CompletedFetch; KIP-98 (read_committed); KIP-74 (partial batches).
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
from plog.records.column_decoder import ColumnDecoder
from plog.records.legacy import upgrade_all
from plog.records.reader import read_payload
from plog.records.record_columns import RecordColumns
from plog.types import TopicPartition
from plog.wire.messages.fetch import AbortedTransaction

Deserialize: TypeAlias = Callable[[bytes], Any]
"""Converts bytes to an application object. It is not called for null, which becomes None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingRules:
    """The settings that apply to all records that a consumer reads."""

    check_crcs: bool = True
    read_committed: bool = False
    deserialize_key: Deserialize | None = None
    deserialize_value: Deserialize | None = None


class ColumnRun(NamedTuple):
    """Consecutive rows in `RecordColumns`, and the values of their batches that they share."""

    partition: TopicPartition
    timestamp_type: int
    leader_epoch: int
    rows: int


class FetchedBatches(NamedTuple):
    """The complete batches in fetched bytes, and the error after the last batch, if any."""

    data: Buffer
    batches: list[tuple[int, BatchHeader]]
    """The position in `data` and the header of each batch."""
    error: KafkaError | None
    next_offset: int
    """The offset after the last batch, or the fetch offset if there are no batches."""


def split_batches(partition: TopicPartition, fetch_offset: int, data: Buffer) -> FetchedBatches:
    """Return the batches in `data` that contain `fetch_offset` or later offsets.

    Batches in Kafka's older formats are converted to the current format first.
    """
    try:
        # Nearly all data is in the current format, so do not check the format separately: older
        # formats raise an error here.
        return _split(partition, fetch_offset, data)
    except UnsupportedForMessageFormat:
        pass
    try:
        modern = b"".join(upgrade_all(data))
    except KafkaError as reason:
        error = _invalid_batches(partition, fetch_offset, reason.message)
        return FetchedBatches(data, [], error, fetch_offset)
    return _split(partition, fetch_offset, modern)


def _split(partition: TopicPartition, fetch_offset: int, data: Buffer) -> FetchedBatches:
    batches: list[tuple[int, BatchHeader]] = []
    next_offset = fetch_offset
    error: KafkaError | None = None
    try:
        for position, header in iter_batches(data):
            previous = batches[-1][1].base_offset if batches else -1
            # A broker writes batches in order, so a lower offset means a damaged header.
            if header.base_offset <= previous or header.last_offset_delta < 0:
                raise CorruptBatch(f"the batch at byte {position} is out of order")
            # A broker may return a whole batch that ends before the fetch offset, so skip it.
            if not batches and header.last_offset < fetch_offset:
                # A corrupt header may also contain such an offset. Do not skip its records.
                if not crc_is_valid(data, position, header):
                    raise CorruptBatch(f"the batch at byte {position} fails its checksum")
                continue
            batches.append((position, header))
            next_offset = max(next_offset, header.next_offset)
    except UnsupportedForMessageFormat:
        # The caller converts the data and tries again.
        raise
    except KafkaError as reason:
        error = _invalid_batches(partition, next_offset, reason.message)
    else:
        # KIP-74: a broker returns at least one complete batch. Without this error, the consumer
        # would repeat the same fetch forever.
        if next_offset == fetch_offset and len(data):
            error = _invalid_batches(
                partition, next_offset, f"{len(data)} bytes do not contain a complete batch"
            )
    return FetchedBatches(data, batches, error, next_offset)


def _invalid_batches(partition: TopicPartition, offset: int, why: str) -> CorruptRecords:
    return CorruptRecords(
        f"cannot read {partition} at offset {offset}: the broker sent an invalid record batch"
        f" ({why}); the fetch will be retried. If the error persists, seek past the damage, to"
        f" offset {offset + 1} or later",
        partition,
        offset,
    )


class CompletedFetch:
    """The fetched batches of one partition. Only the consuming thread may call its methods."""

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
        """The leader epoch of the last batch from which records were taken, or -1."""
        self.size_bytes = len(split.data)
        self._data = split.data
        self._rules = rules
        self._aborted = AbortedTransactions(aborted) if rules.read_committed else None
        self._batches = split.batches
        self._end_error = split.error
        self._index = 0
        """The index of the batch to open next."""
        self._header: BatchHeader | None = None
        """The open batch; its records are in `_payload`, then in `_ready` from `_start` on."""
        self._payload = b""
        self._ready: list[ConsumerRecord] | None = None
        self._start = 0
        self._error: PlogError | None = None

    @property
    def is_done(self) -> bool:
        """Whether all records have been taken and no error is left."""
        return (
            self._header is None
            and self._index == len(self._batches)
            and self._error is None
            and self._end_error is None
        )

    @property
    def ends_damaged(self) -> bool:
        """Whether the data after the last valid batch is invalid."""
        return self._end_error is not None

    def take(self, wanted: int) -> list[ConsumerRecord]:
        """Return `wanted` records, or fewer if fewer are left.

        Raises CorruptRecords or SerializationFailed if the next record cannot be read.
        """
        taken: list[ConsumerRecord] = []
        while len(taken) < wanted and (self._header is not None or self._open_next()):
            ready = self._ready
            if ready is None and (ready := self._decode()) is None:
                break
            end = self._start + wanted - len(taken)
            # Usually, the caller takes the whole batch, which need not be copied.
            part = ready if not self._start and end >= len(ready) else ready[self._start : end]
            self._start += len(part)
            if part:
                self.next_offset = part[-1].offset + 1
                if taken:
                    taken += part
                else:
                    taken = part
            if self._start == len(ready):
                # Do not clear the old list: it may be `part`, which now belongs to the caller.
                self._ready, self._start = [], 0
                if self._error is not None:
                    # `next_offset` stays at the record that cannot be read.
                    break
                self._close_batch()
        self._raise_if_nothing(taken)
        return taken

    def take_columns(self, columns: RecordColumns, wanted: int) -> list[ColumnRun]:
        """Append up to `wanted` records to `columns` and return the runs that were added.

        Deserializers are not applied. Raises the same errors as `take`.
        """
        runs: list[ColumnRun] = []
        # Discard records that `take` has already decoded: decoding restarts at `next_offset`.
        self._ready, self._start = None, 0
        if isinstance(self._error, SerializationFailed):
            # Columns contain raw bytes, so a failed deserializer does not matter.
            self._error = None
        decoder = ColumnDecoder(columns, max_rows=wanted, records_count=self._records_left())
        try:
            while not decoder.is_full and (self._header is not None or self._open_next()):
                header, rows = self._header, decoder.row
                assert header is not None
                # The codec decodes a batch from its start, and filters by offset.
                self.next_offset = decoder.decode(
                    self._payload, header, from_offset=self.next_offset
                )
                if decoder.row > rows:
                    self.leader_epoch = header.partition_leader_epoch
                    _add_run(runs, self.partition, header, decoder.row - rows)
                if self.next_offset >= header.next_offset:
                    self._close_batch()
        except KafkaError as reason:
            assert self._header is not None
            self._error = self._damaged(self._header, reason.message)
        finally:
            decoder.close()
        self._raise_if_nothing(runs)
        return runs

    def _records_left(self) -> int:
        """Return the number of records in the open batch and those after it, read or not."""
        waiting = self._batches[self._index if self._header is None else self._index - 1 :]
        # In a damaged header, the number may be negative.
        return sum(max(0, header.records_count) for _, header in waiting)

    def _raise_if_nothing(self, taken: Sequence[object]) -> None:
        # The records before an error are returned first; the next call raises the error.
        if taken:
            return
        error = self._error
        if error is None and self._index == len(self._batches):
            error = self._end_error
        if error is not None:
            raise error

    def _open_next(self) -> bool:
        """Open the next batch with visible records; return False at the end or after an error."""
        while self._error is None and self._index < len(self._batches):
            position, header = self._batches[self._index]
            self._index += 1
            try:
                # Check it here, in the consuming thread: a check on arrival would occupy the
                # engine's thread.
                if self._rules.check_crcs and not crc_is_valid(self._data, position, header):
                    raise CorruptBatch("the batch fails its checksum")
                if not self._is_hidden(position, header):
                    self._payload = read_payload(self._data, position, header)
                    self._header = header
                    return True
            except KafkaError as reason:
                self._error = self._damaged(header, reason.message)
                return False
            # Move past a hidden batch; otherwise, it would be fetched again.
            self.next_offset = max(self.next_offset, header.next_offset)
        return False

    def _is_hidden(self, position: int, header: BatchHeader) -> bool:
        """Return whether the application must not see the batch's records."""
        is_aborted = self._aborted is not None and self._aborted.covers(
            self._data, position, header
        )
        return is_aborted or header.is_control or not header.records_count

    def _close_batch(self) -> None:
        assert self._header is not None
        self.next_offset = max(self.next_offset, self._header.next_offset)
        self._header, self._ready, self._payload, self._start = None, None, b"", 0

    def _decode(self) -> list[ConsumerRecord] | None:
        """Return the open batch's records from `next_offset` on, or None after an error."""
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
        # The first batch may start before the fetch offset.
        if ready and ready[0].offset < self.next_offset:
            ready = [record for record in ready if record.offset >= self.next_offset]
        self.leader_epoch = header.partition_leader_epoch
        rules = self._rules
        if rules.deserialize_key is not None or rules.deserialize_value is not None:
            ready = self._deserialize(ready)
        self._ready, self._start = ready, 0
        return ready

    def _deserialize(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        """Return the records with deserialized keys and values, up to the first failure."""
        to_key, to_value = self._rules.deserialize_key, self._rules.deserialize_value
        # In a loop over all records, the NamedTuple's constructor would be noticeably slower.
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
                # The error is raised later, where `raise … from` is not possible.
                self._error.__cause__ = reason
                break
            fields = (topic, partition, offset, timestamp, kind, key, value, headers, epoch)
            done.append(new(ConsumerRecord, fields))
        return done

    def _damaged(self, header: BatchHeader, why: str) -> CorruptRecords:
        """Return the error for a batch that cannot be read; it states the offset to seek to."""
        last = header.last_offset
        if self._index < len(self._batches):
            # A corrupt header may contain a wrong last offset. The next batch's base offset limits
            # it.
            _, following = self._batches[self._index]
            last = min(last, following.base_offset - 1)
        # A seek to the offset after `last` must never move the position back.
        last = max(last, self.next_offset)
        return CorruptRecords(
            f"cannot read {self.partition}, offsets {self.next_offset} to {last}: {why}; the fetch"
            f" will be retried; seek to {last + 1} to skip them",
            self.partition,
            last,
        )


def _unreadable(
    partition: TopicPartition, offset: int, part: str, reason: Exception
) -> SerializationFailed:
    return SerializationFailed(
        f"cannot read {partition} at offset {offset}: the {part} deserializer raised"
        f" {type(reason).__name__}: {reason}; seek to {offset + 1} to skip the record",
        partition,
        offset,
    )


def _add_run(
    runs: list[ColumnRun], partition: TopicPartition, header: BatchHeader, rows: int
) -> None:
    """Add the rows of a batch to the last run, or to a new one if their values differ."""
    kind, epoch = header.timestamp_type, header.partition_leader_epoch
    if runs:
        _, last_kind, last_epoch, last_rows = runs[-1]
        if last_kind is kind and last_epoch == epoch:
            runs[-1] = ColumnRun(partition, kind, epoch, last_rows + rows)
            return
    runs.append(ColumnRun(partition, kind, epoch, rows))
