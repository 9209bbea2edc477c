"""`run_backfill`: read a time range in batches, then the stream, into the same tables."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from plog.settings import ConfigError
from plog.spark.jobs.backfill.backfill_plan import (
    BackfillPlan,
    read_plan,
    resolve_plan,
    write_plan,
)
from plog.spark.jobs.job_source import (
    JobSource,
    JobTrigger,
    TimeRange,
    read_offsets,
    read_stream,
)
from plog.spark.jobs.progress import Report, print_progress
from plog.spark.jobs.table_files import TableFiles
from plog.spark.jobs.warehouse.batch_writer import BatchWriter
from plog.spark.jobs.warehouse.warehouse_options import TableOptions
from plog.spark.options.offsets_json import format_offsets
from plog.spark.options.option_names import KAFKA
from plog.spark.options.topic_choice import TopicChoice
from plog.spark.reader.cluster_lookup import ClusterLookup
from plog.types import TopicPartition, Uuid

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SLICE_SIZE: Final = 5_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillOptions:
    """The range and the table; `from_ms` and `to_ms` are times in ms since 1970, or None."""

    source: JobSource
    table: TableOptions
    checkpoint: Path
    from_ms: int | None = None
    to_ms: int | None = None
    slice_size: int = _SLICE_SIZE
    """The maximum number of records in a batch of the range."""
    stream: bool = True
    """Whether the stream follows the range."""
    trigger: JobTrigger = field(default_factory=JobTrigger)

    def __post_init__(self) -> None:
        # It raises ConfigError for a range that ends before it starts.
        TimeRange(from_ms=self.from_ms, to_ms=self.to_ms)
        problems = self.source.target_problems(self.table.dead_letter_topic)
        if problems:
            raise ConfigError(problems)


def run_backfill(
    spark: SparkSession,
    options: BackfillOptions,
    *,
    report: Report = print_progress,
    files: TableFiles | None = None,
) -> None:
    """Write the range, then the stream, until the query is stopped or has read what is available.

    After an interruption, the same call continues with the offsets of the first one.
    """
    files = files or TableFiles()
    plan = _plan(options, files, report)
    client = options.source.client_options()
    # Slices are not written by a streaming query, so the id of the plan owns the table.
    writer = BatchWriter.opened(options.table, plan.id, client, report, files)
    # The slice after the last committed one may have been written in part; it is repeated.
    for number in range(writer.folder.committed + 1, plan.slice_count):
        report(f"slice {number + 1} of {plan.slice_count}")
        writer.write(_read_slice(spark, options.source, plan, number), number)
    if not options.stream:
        writer.complete()
        return
    _run_stream(spark, options, plan, writer)


def _plan(options: BackfillOptions, files: TableFiles, report: Report) -> BackfillPlan:
    """Return the stored plan or, the first time, a new one."""
    path = options.checkpoint / "backfill.json"
    plan = read_plan(files, path)
    if plan is None:
        with _lookup(options.source) as lookup:
            plan = resolve_plan(
                lookup,
                _partitions(lookup, options.source),
                from_ms=options.from_ms,
                to_ms=options.to_ms,
                slice_size=options.slice_size,
            )
        # The plan is stored before anything is read, so that a restart uses the same offsets.
        write_plan(files, path, plan)
    report(f"backfill from {format_offsets(plan.start)} to {format_offsets(plan.end)}")
    return plan


def _lookup(source: JobSource) -> ClusterLookup:
    settings = source.client_options().items()
    return ClusterLookup({name.removeprefix(KAFKA): value for name, value in settings})


def _partitions(lookup: ClusterLookup, source: JobSource) -> dict[TopicPartition, Uuid | None]:
    pattern = None if source.pattern is None else re.compile(source.pattern)
    return lookup.partitions(TopicChoice(topics=source.topics, pattern=pattern))


def _read_slice(
    spark: SparkSession, source: JobSource, plan: BackfillPlan, number: int
) -> DataFrame:
    starts, ends = plan.slice(number)
    # New partitions belong to the stream.
    more = {
        "includeHeaders": "true",
        "failOnDataLoss": str(source.fail_on_data_loss).lower(),
    }
    return read_offsets(spark, source.client_options(), starts, ends, more)


def _run_stream(
    spark: SparkSession, options: BackfillOptions, plan: BackfillPlan, writer: BatchWriter
) -> None:
    checkpoint = options.checkpoint / "stream"
    source = options.source
    # A lookup would fail if a topic was deleted since the query started. The source then follows
    # failOnDataLoss.
    if not _has_started(checkpoint):
        with _lookup(source) as lookup:
            starts = plan.stream_start(_partitions(lookup, source))
        source = replace(source, starting_offsets=format_offsets(starts))
    first = plan.slice_count

    def write(batch: DataFrame, batch_id: int) -> None:
        # Spark numbers the batches of the stream from 0, but those of the table follow the slices.
        writer.write(batch, first + batch_id)

    query = read_stream(spark, source, include_headers=True).writeStream
    query = options.trigger.apply(
        query.queryName(f"plog-backfill {options.table.output}").foreachBatch(write)
    )
    query.option("checkpointLocation", str(checkpoint)).start().awaitTermination()
    writer.finish(checkpoint, first)


def _has_started(checkpoint: Path) -> bool:
    """Return whether a query has saved the offsets of a batch, which replace starting offsets."""
    return any((checkpoint / "offsets").glob("[0-9]*"))
