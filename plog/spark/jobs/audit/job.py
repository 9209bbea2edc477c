"""`run_audit_job`: an audit whose records are counted by Spark."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from plog.audit.counts import AuditCounts
from plog.audit.result import AuditResult
from plog.client.audit.audit_options import AuditOptions
from plog.client.audit.audit_run import Ranges, run_audit
from plog.client.topic_reader import TopicReader
from plog.spark.jobs.audit.window_rows import WindowRow, counts_of
from plog.spark.jobs.job_source import connecting, read_offsets
from plog.spark.options.option_names import KAFKA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditJobOptions:
    """The cluster, with the settings of its client, and what the audit compares."""

    client: Mapping[str, str]
    audit: AuditOptions = field(default_factory=AuditOptions)


def run_audit_job(spark: SparkSession, options: AuditJobOptions) -> AuditResult:
    """Run an audit and return its result.

    Raises ConfigError and UnknownTopicOrPartition for missing topics, AuditError if a topic is
    recreated meanwhile, and PySparkException if a task fails.
    """

    def count(ranges: Ranges) -> AuditCounts:
        # The source rejects a query without partitions.
        if not ranges:
            return AuditCounts()
        rows = window_totals(records(spark, options.client, ranges)).collect()
        return counts_of(WindowRow(*row) for row in rows)

    with TopicReader(options.client) as cluster:
        return run_audit(cluster, options.audit, count, now_ms=int(time.time() * 1000))


def records(spark: SparkSession, client: Mapping[str, str], ranges: Ranges) -> DataFrame:
    """Return the records of `ranges` with their headers, without those of aborted transactions."""
    return read_offsets(
        spark,
        connecting(client),
        {one: start for one, (start, _) in ranges.items()},
        {one: end for one, (_, end) in ranges.items()},
        {
            "includeHeaders": "true",
            # Records that retention deletes meanwhile are in windows that are not compared.
            "failOnDataLoss": "false",
            f"{KAFKA}isolation.level": "read_committed",
        },
    )


def window_totals(rows: DataFrame) -> DataFrame:
    """Return the columns of `WindowRow`: one row for each topic, window and header value."""
    from pyspark.sql import functions as F

    millis = F.unix_millis("timestamp")
    # As in `producer_of`, the last header with the name counts.
    last_header = F.expr("try_element_at(filter(headers, h -> h.key = 'plog.audit'), -1).value")
    crc = F.crc32(F.coalesce("value", F.lit(b"")))
    counted = rows.select(
        "topic",
        # Records without a timestamp have the time -1, of which `%` returns a negative remainder.
        (millis - F.pmod(millis, F.lit(60_000))).alias("window_ms"),
        last_header.alias("producer"),
        F.coalesce(F.octet_length("value"), F.lit(0)).alias("size"),
        crc.alias("crc"),
    )
    return counted.groupBy("topic", "window_ms", "producer").agg(
        F.count("*"),
        F.sum("size"),
        # A sum of whole checksums may exceed 64 bits, which is an error in Spark.
        F.sum(F.shiftright("crc", 16)),
        F.sum(F.col("crc").bitwiseAND(0xFFFF)),
    )
