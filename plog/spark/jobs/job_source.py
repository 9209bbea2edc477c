"""`JobSource`: the topics that a job reads, and how it divides them into batches."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from plog.settings import ConfigError
from plog.spark.options.offsets_json import format_offsets
from plog.spark.options.option_names import KAFKA
from plog.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter


EARLIEST_OFFSETS: Final = "earliest"


def connecting(client: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a query for settings of the client.

    >>> connecting({"bootstrap.servers": "b:9092"})
    {'kafka.bootstrap.servers': 'b:9092'}
    """
    return {f"{KAFKA}{name}": value for name, value in client.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSource:
    """The topics that a job reads: either `topics`, or those that match `pattern`."""

    bootstrap_servers: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    client: Mapping[str, str] = field(default_factory=dict)
    """Settings of the client, such as ``security.protocol``."""
    starting_offsets: str = EARLIEST_OFFSETS
    """Where a new query starts; see the option ``startingOffsets`` of the source."""
    max_offsets_per_trigger: int | None = None
    fail_on_data_loss: bool = True

    def __post_init__(self) -> None:
        if bool(self.topics) == (self.pattern is not None):
            raise ConfigError(["cannot choose topics: set either topics or a pattern"])

    def target_problems(self, *topics: str | None) -> list[str]:
        """Return a problem for each topic to which a job would write, and which it also reads."""
        # The job would never end, because it would read its own results.
        return [
            f"cannot write to {topic}: the job also reads this topic; write to another topic, or"
            " choose the topics to read by a pattern that does not match it"
            for topic in topics
            if topic is not None and self._reads(topic)
        ]

    def _reads(self, topic: str) -> bool:
        if self.pattern is None:
            return topic in self.topics
        # As in the source, a pattern need not match the whole name.
        return re.search(self.pattern, topic) is not None

    def client_options(self) -> dict[str, str]:
        """Return the options that connect a query, which reads or writes, to the cluster."""
        return connecting({**self.client, "bootstrap.servers": self.bootstrap_servers})

    def options(self, *, include_headers: bool = False) -> dict[str, str]:
        """Return the options of a streaming query that reads the topics."""
        options = self.client_options()
        if self.pattern is None:
            options["subscribe"] = ",".join(self.topics)
        else:
            options["subscribePattern"] = self.pattern
        options["startingOffsets"] = self.starting_offsets
        options["failOnDataLoss"] = str(self.fail_on_data_loss).lower()
        options["includeHeaders"] = str(include_headers).lower()
        if self.max_offsets_per_trigger is not None:
            options["maxOffsetsPerTrigger"] = str(self.max_offsets_per_trigger)
        return options


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTrigger:
    """When a job starts a batch: every `interval_s`, or until it has read what is available."""

    available_now: bool = False
    interval_s: float = 60

    def apply(self, writer: DataStreamWriter) -> DataStreamWriter:
        """Set the trigger of a query."""
        if self.available_now:
            return writer.trigger(availableNow=True)
        return writer.trigger(processingTime=f"{self.interval_s} seconds")


def read_stream(
    spark: SparkSession, source: JobSource, *, include_headers: bool = False
) -> DataFrame:
    """Return the stream of the records of the source."""
    options = source.options(include_headers=include_headers)
    return spark.readStream.format("plog").options(**options).load()


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRange:
    """The records from `from_ms` until before `to_ms`, in ms since 1970; None is no limit."""

    from_ms: int | None = None
    to_ms: int | None = None

    def __post_init__(self) -> None:
        if self.from_ms is not None and self.to_ms is not None and self.from_ms >= self.to_ms:
            raise ConfigError(["cannot read the range: its end is not after its start"])

    @property
    def is_limited(self) -> bool:
        """Return whether the range has a start or an end."""
        return self.from_ms is not None or self.to_ms is not None


def range_options(source: JobSource, times: TimeRange, *, include_headers: bool) -> dict[str, str]:
    """Return the options of a batch query that reads a range; some records are outside of it."""
    options = source.options(include_headers=include_headers)
    # A batch query would warn about this option of streams.
    options.pop("maxOffsetsPerTrigger", None)
    # The starting offsets of the source are for streams, and may be later than the range.
    options["startingOffsets"] = "earliest"
    if times.from_ms is not None:
        options["startingTimestamp"] = str(times.from_ms)
        # Otherwise, a partition whose records are all older would fail the query.
        options["startingOffsetsByTimestampStrategy"] = "latest"
    return options


def read_range(
    spark: SparkSession, source: JobSource, times: TimeRange, *, include_headers: bool = False
) -> DataFrame:
    """Return the records of the source with a timestamp in a range."""
    from pyspark.sql import functions as F

    options = range_options(source, times, include_headers=include_headers)
    rows = spark.read.format("plog").options(**options).load()
    # The end of the range is only a filter. With CreateTime, records of the range may follow later
    # ones, so an ending offset would lose them.
    for limit_ms, of in ((times.from_ms, ">="), (times.to_ms, "<")):
        if limit_ms is not None:
            # Numbers do not depend on the time zone of the session, as literals of timestamps do.
            rows = rows.where(F.expr(f"unix_millis(timestamp) {of} {limit_ms}"))
    return rows


def read_offsets(
    spark: SparkSession,
    client: Mapping[str, str],
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    more: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return the records of ranges of offsets, without the ends.

    `client` are the options that connect a query to the cluster; `more` are other options.
    """
    partitions: dict[str, list[int]] = {}
    for topic, number in starts:
        partitions.setdefault(topic, []).append(number)
    chosen = {
        # The option subscribe would also select partitions that were added since, for which there
        # are no offsets.
        "assign": json.dumps(partitions),
        "startingOffsets": format_offsets(starts),
        "endingOffsets": format_offsets(ends),
    }
    options = {**client, **chosen, **(more or {})}
    return spark.read.format("plog").options(**options).load()


def append_records(records: DataFrame, source: JobSource, topic: str) -> None:
    """Append the rows of a batch to a topic of the source's cluster, at least once."""
    # Python data sources do not support Spark's default mode, ErrorIfExists.
    writer = records.write.format("plog").mode("append").options(**source.client_options())
    writer.option("topic", topic).save()
