"""Reading known ranges over blocking sockets, without a group, a thread or a reactor.

For workers of batch jobs, scripts and tools, where importing a reactor costs more than the work:
who knows from which offset to which a partition is to be read (from `Admin`, from a checkpoint)
gets exactly that. Leaders are followed, TLS and SASL are spoken, aborted transactions are left out
with ``isolation.level=read_committed``: all by the parts that the other consumers are made of.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Self, TypeVar

from plog.client.consumer.arrow import record_batch, record_schema
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
"""How many are made at once; a fetch mostly brings fewer."""
_ARROW_RECORDS_MAX = 1 << 16
_offset = attrgetter("offset")


class SimpleConsumer:
    """Reads ranges of partitions, one after the other. One thread at a time may use it.

        with SimpleConsumer(bootstrap_servers="localhost:9092") as consumer:
            partition = TopicPartition("page-views", 0)
            stop = consumer.end_offsets([partition])[partition]
            for record in consumer.records(partition, 0, stop):
                print(record.offset, record.value)

    Settings are a consumer's, but those of groups and positions, ``client.rack`` and
    ``max.poll.records`` have no meaning here. Nothing is tried for longer than
    ``default.api.timeout.ms``.

    Raises ConfigError for settings that are wrong.
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
        if made.group_id is not None:
            raise ConfigError(
                [f"group.id={made.group_id}: a SimpleConsumer is in no group; use a Consumer"]
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
        """End the connections; harmless when they have ended."""
        if not self._is_closed:
            self._is_closed = True
            run_blocking(self._cluster.close())

    # -- what there is ------------------------------------------------------------------------

    def partitions_for(self, topic: str) -> tuple[PartitionMetadata, ...]:
        """A topic's partitions in their order, with their leaders.

        Raises UnknownTopicOrPartition, TopicAuthorizationFailed, ...
        """
        return self._run(self._cluster.topic(topic)).partitions

    def beginning_offsets(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """The offset of the first record there is in each."""
        asked = checked_partitions(partitions)
        return self._run(self._reader.lookup.beginnings(asked, timeout_s=self._timeout_s))

    def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset behind the last record that ``isolation.level`` lets this consumer read."""
        asked = checked_partitions(partitions)
        return self._run(self._reader.lookup.ends(asked, timeout_s=self._timeout_s))

    def offsets_for_times(
        self, times: Mapping[TopicPartition, Time]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of that time or later in each; None where there is none.

        A time is in ms since 1970, or a datetime with a time zone.
        """
        asked = {checked_partition(one): time_ms(time) for one, time in times.items()}
        return self._run(self._reader.lookup.at_times(asked, timeout_s=self._timeout_s))

    # -- reading ------------------------------------------------------------------------------

    def records(self, partition: TopicPartition, start: int, stop: int) -> Iterator[ConsumerRecord]:
        """The records from offset `start` on and before `stop`, then the end.

        There are fewer than `stop` - `start` where transactions end and where a log was compacted.
        Raises OffsetOutOfRange where `start` is no longer, or not yet, in the log, RequestTimedOut
        where it does not reach `stop`; behind the records before it CorruptRecords for a batch
        that is damaged and SerializationFailed.
        """
        for fetched in self._fetches(partition, start, stop):
            while not fetched.is_done and fetched.next_offset < stop:
                records = fetched.take(_RECORDS_MAX)
                if records and records[-1].offset >= stop:
                    del records[bisect_left(records, stop, key=_offset) :]
                yield from records

    def arrow_batches(
        self,
        partition: TopicPartition,
        start: int,
        stop: int,
        *,
        max_records: int = _ARROW_RECORDS_MAX,
    ) -> Iterator[pyarrow.RecordBatch]:
        """As `records`, as Arrow columns of up to `max_records` rows; nothing is deserialized.

        Needs the extra ``plog[arrow]``: raises MissingExtra without it.
        """
        if max_records < 1:
            raise ValueError(f"max_records is {max_records}; nobody waits for less than one")
        record_schema()
        columns, runs = RecordColumns(), list[ColumnRun]()
        try:
            for fetched in self._fetches(partition, start, stop):
                while not fetched.is_done and fetched.next_offset < stop:
                    runs += fetched.take_columns(columns, max_records - len(columns))
                    if columns.offsets and columns.offsets[-1] >= stop:
                        _cut(columns, runs, bisect_left(columns.offsets, stop))
                    if len(columns) == max_records or columns.is_full:
                        yield record_batch(columns, runs)
                        columns, runs = RecordColumns(), []
        except PlogError:
            if runs:
                yield record_batch(columns, runs)
            raise
        if runs:
            yield record_batch(columns, runs)

    def _fetches(
        self, partition: TopicPartition, start: int, stop: int
    ) -> Iterator[CompletedFetch]:
        partition = checked_partition(partition)
        position = start
        while position < stop:
            fetched = self._run(self._reader.fetch(partition, position, stop))
            yield fetched
            position = fetched.next_offset

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self._is_closed:
            coroutine.close()
            raise ClosedError("the consumer is closed: make a new one")
        return run_blocking(coroutine)


def _cut(columns: RecordColumns, runs: list[ColumnRun], rows: int) -> None:
    """Keep the first `rows`."""
    too_many = len(columns) - rows
    columns.truncate(rows)
    while too_many:
        last = runs.pop()
        if last.rows > too_many:
            runs.append(last._replace(rows=last.rows - too_many))
            return
        too_many -= last.rows
