"""A consumer for known offset ranges over blocking sockets, without a group, a thread or a reactor.

It is intended for batch job workers, scripts and tools, where importing a reactor can take longer
than the work itself. The caller specifies a partition with start and stop offsets, for example from
`Admin` or a checkpoint. Like the other consumers, it follows leaders, supports TLS and SASL, and
filters aborted transactions with ``isolation.level=read_committed``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Self, TypeVar

from plog.client.consumer.arrow import BuildBatch, record_batch, record_schema
from plog.client.consumer.completed_fetch import ColumnRun, CompletedFetch
from plog.client.consumer.range_reader import RangeReader
from plog.client.consumer.timestamps import Time, time_ms
from plog.client.errors import ClosedError, ConfigError
from plog.client.network.cluster import Cluster
from plog.client.network.metadata import PartitionMetadata
from plog.client.network.socket_network import SocketNetwork, run_blocking
from plog.client.settings.consumer import ConsumerSettings
from plog.client.settings.settings_loader import Servers
from plog.client.values import (
    ConsumerRecord,
    OffsetAndTimestamp,
    checked_partition,
    checked_partitions,
)
from plog.errors import PlogError
from plog.records.record_columns import RecordColumns
from plog.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow

T = TypeVar("T")

_RECORDS_MAX = 1 << 16
"""The maximum number of records to decode at a time; a fetch usually returns fewer."""
_ARROW_RECORDS_MAX = 1 << 16
_offset = attrgetter("offset")


class SimpleConsumer:
    """A client that reads offset ranges of partitions. Use it in one thread at a time.

        with SimpleConsumer(bootstrap_servers="localhost:9092") as consumer:
            partition = TopicPartition("page-views", 0)
            stop = consumer.end_offsets([partition])[partition]
            for record in consumer.records(partition, 0, stop):
                print(record.offset, record.value)

    It accepts a consumer's settings, but settings for groups and positions, ``client.rack`` and
    ``max.poll.records`` have no effect. No operation takes longer than ``default.api.timeout.ms``.

    Raises ConfigError for invalid settings.
    """

    def __init__(
        self,
        *,
        bootstrap_servers: Servers = None,
        key_deserializer: Callable[[bytes], Any] | None = None,
        value_deserializer: Callable[[bytes], Any] | None = None,
        config: Mapping[str, object] | None = None,
        **settings: object,
    ) -> None:
        made = ConsumerSettings.from_options(
            config, bootstrap_servers=bootstrap_servers, **settings
        )
        # A group member must send heartbeats in the background, which blocking sockets cannot do.
        if made.group_id is not None:
            raise ConfigError(
                [
                    f"group.id={made.group_id}: a SimpleConsumer does not support groups; use a"
                    " Consumer"
                ]
            )
        self._timeout_s = made.default_api_timeout_ms / 1000
        self._cluster = Cluster(SocketNetwork(client_id=made.client_id), made)
        self._reader = RangeReader(
            self._cluster,
            made,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
        )
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; repeated calls have no effect."""
        if not self._is_closed:
            self._is_closed = True
            run_blocking(self._cluster.close())

    # -- queries ------------------------------------------------------------------------------

    def partitions_for(self, topic: str) -> tuple[PartitionMetadata, ...]:
        """Return a topic's partitions in order, with their leaders.

        Raises UnknownTopicOrPartition, TopicAuthorizationFailed and others.
        """
        return self._run(self._cluster.topic(topic)).partitions

    def beginning_offsets(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return the offset of each partition's first record."""
        asked = checked_partitions(partitions)
        return self._run(self._reader.lookup.beginnings(asked, timeout_s=self._timeout_s))

    def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return, for each partition, the offset after the last readable record.

        ``isolation.level`` determines which records are readable.
        """
        asked = checked_partitions(partitions)
        return self._run(self._reader.lookup.ends(asked, timeout_s=self._timeout_s))

    def offsets_for_times(
        self, times: Mapping[TopicPartition, Time]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record at or after each partition's time, or None if there is no record.

        A time is in ms since 1970, or a datetime with a time zone.
        """
        asked = {checked_partition(one): time_ms(time) for one, time in times.items()}
        return self._run(self._reader.lookup.at_times(asked, timeout_s=self._timeout_s))

    # -- reading ------------------------------------------------------------------------------

    def records(self, partition: TopicPartition, start: int, stop: int) -> Iterator[ConsumerRecord]:
        """Yield the records from offset `start` up to, but not including, `stop`.

        Because of transaction markers and compaction, there may be fewer than `stop` - `start`
        records. Raises OffsetOutOfRange if the log does not contain `start`, and RequestTimedOut if
        it ends before `stop`. If a record cannot be read, the iterator first yields all earlier
        records, and then raises CorruptRecords or SerializationFailed.
        """
        for fetched in self._fetches(partition, start, stop):
            # A batch may extend past `stop`.
            while not fetched.is_done and fetched.next_offset < stop:
                records = fetched.take(_RECORDS_MAX)
                if records and records[-1].offset >= stop:
                    # Offsets within a batch are sorted.
                    del records[bisect_left(records, stop, key=_offset) :]
                yield from records

    def arrow_batches(
        self,
        partition: TopicPartition,
        start: int,
        stop: int,
        *,
        max_records: int = _ARROW_RECORDS_MAX,
        build: BuildBatch = record_batch,
    ) -> Iterator[pyarrow.RecordBatch]:
        """Yield the records as Arrow columns of up to `max_records` rows, without deserializing.

        `build` determines the schema. Raises the same errors as `records`, and MissingExtra
        without the extra ``plog[arrow]``.
        """
        if max_records < 1:
            raise ValueError(f"max_records is {max_records}: it must be at least 1")
        # Without pyarrow, raise MissingExtra before records are fetched.
        record_schema()
        columns, runs = RecordColumns(), list[ColumnRun]()
        try:
            for fetched in self._fetches(partition, start, stop):
                while not fetched.is_done and fetched.next_offset < stop:
                    runs += fetched.take_columns(columns, max_records - len(columns))
                    if columns.offsets and columns.offsets[-1] >= stop:
                        _cut(columns, runs, bisect_left(columns.offsets, stop))
                    if len(columns) == max_records or columns.is_full:
                        yield build(columns, runs)
                        columns, runs = RecordColumns(), []
        except PlogError:
            # Yield the rows before the error first.
            if runs:
                yield build(columns, runs)
            raise
        if runs:
            yield build(columns, runs)

    def _fetches(
        self, partition: TopicPartition, start: int, stop: int
    ) -> Iterator[CompletedFetch]:
        partition = checked_partition(partition)
        position = start
        while position < stop:
            fetched = self._run(self._reader.fetch(partition, position, stop))
            yield fetched
            # `next_offset` also moves past control batches and compacted offsets, so the loop
            # always makes progress.
            position = fetched.next_offset

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self._is_closed:
            # Without this, Python warns that the coroutine was never awaited.
            coroutine.close()
            raise ClosedError("the consumer is closed: create a new one")
        return run_blocking(coroutine)


def _cut(columns: RecordColumns, runs: list[ColumnRun], rows: int) -> None:
    """Keep only the first `rows` rows, and shorten `runs` accordingly."""
    excess = len(columns) - rows
    columns.truncate(rows)
    while excess:
        last = runs.pop()
        if last.rows > excess:
            runs.append(last._replace(rows=last.rows - excess))
            return
        excess -= last.rows
