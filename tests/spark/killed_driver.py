"""The driver of a stream that test_kills.py kills: it deduplicates, or runs the job `warehouse`.

python -m tests.spark.killed_driver '{"job": "warehouse", "folder": …, "ends": false, …}'
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plog.spark.jobs.job_source import JobSource, JobTrigger
from plog.spark.jobs.warehouse.job import run_warehouse
from plog.spark.jobs.warehouse.merge_planning import MergeLimits
from plog.spark.jobs.warehouse.warehouse_options import TableOptions, WarehouseOptions
from tests.spark.faulty_stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def main(wanted: dict[str, Any]) -> None:
    """Run the stream until it is killed, or until it has read everything."""
    from tests.spark.spark_session import spark_session

    # Two executors, each in a JVM of its own below that of the driver. The last driver, which is
    # not killed, needs none.
    master = "local[2]" if wanted["ends"] else "local-cluster[2,1,512]"
    more = {"spark.executor.memory": "512m"}
    with spark_session(Path(wanted["folder"]), master, more) as spark:
        JOBS[wanted["job"]](spark, wanted)


def deduplicate(spark: SparkSession, wanted: dict[str, Any]) -> None:
    """Copy a topic to another one."""
    stream = Stream(**wanted["stream"])
    reader = spark.readStream.format("plog").options(
        subscribe=stream.source, startingOffsets="earliest", maxOffsetsPerTrigger="150"
    )
    rows = reader.option("kafka.bootstrap.servers", stream.bootstrap_servers).load()
    writer = rows.selectExpr("value").writeStream.format("plog")
    writer = writer.option("kafka.bootstrap.servers", stream.bootstrap_servers)
    writer = writer.options(
        topic=stream.target, deduplicate="killed", checkpointLocation=stream.checkpoint
    )
    trigger = {"availableNow": True} if wanted["ends"] else {"processingTime": "0 seconds"}
    writer.trigger(**trigger).start().awaitTermination()


def warehouse(spark: SparkSession, wanted: dict[str, Any]) -> None:
    """Store a topic as a table, whose hours are merged soon."""
    run_warehouse(
        spark,
        WarehouseOptions(
            source=JobSource(
                bootstrap_servers=wanted["servers"],
                topics=(wanted["topic"],),
                max_offsets_per_trigger=150,
            ),
            table=TableOptions(output=Path(wanted["output"]), merges=MergeLimits(close_delay_s=0)),
            checkpoint=Path(wanted["checkpoint"]),
            trigger=JobTrigger(available_now=wanted["ends"], interval_s=0),
        ),
    )


JOBS: dict[str, Callable[[SparkSession, dict[str, Any]], None]] = {
    "deduplicate": deduplicate,
    "warehouse": warehouse,
}


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
