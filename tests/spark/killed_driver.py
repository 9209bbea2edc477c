"""The driver of two streams that test_kills.py kills: one deduplicates, one is the job `warehouse`.

python -m tests.spark.killed_driver '{"folder": …, "ends": false, …}'
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plog.spark.jobs.job_source import JobSource, JobTrigger
from plog.spark.jobs.warehouse.job import run_warehouse
from plog.spark.jobs.warehouse.merge_planning import MergeLimits
from plog.spark.jobs.warehouse.warehouse_options import TableOptions, WarehouseOptions
from tests.spark.faulty_stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery


def main(wanted: dict[str, Any]) -> None:
    """Run both streams until the driver is killed or one fails, or until they have read everything.

    They run at the same time, because drivers take long to start.
    """
    from tests.spark.spark_session import spark_session

    # Two executors, each in a JVM of its own below that of the driver. The last driver, which is
    # not killed, needs none.
    master = "local[2]" if wanted["ends"] else "local-cluster[2,1,512]"
    more = {"spark.executor.memory": "512m"}
    with spark_session(Path(wanted["folder"]), master, more) as spark:
        pool = ThreadPoolExecutor(2)
        # Spark looks for data sources once; a second thread would not find plog meanwhile.
        query = deduplicate(spark, wanted)
        jobs = [pool.submit(query.awaitTermination), pool.submit(warehouse, spark, wanted)]
        try:
            for job in as_completed(jobs):
                job.result()
        except Exception:
            traceback.print_exc()
            # The thread of the other stream would not end.
            os._exit(1)


def deduplicate(spark: SparkSession, wanted: dict[str, Any]) -> StreamingQuery:
    """Start to copy a topic to another one."""
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
    return writer.trigger(**trigger).start()


def warehouse(spark: SparkSession, wanted: dict[str, Any]) -> None:
    """Store a topic as a table, whose hours are merged soon."""
    run_warehouse(
        spark,
        WarehouseOptions(
            source=JobSource(
                bootstrap_servers=wanted["stream"]["bootstrap_servers"],
                topics=(wanted["stream"]["source"],),
                max_offsets_per_trigger=150,
            ),
            table=TableOptions(output=Path(wanted["output"]), merges=MergeLimits(close_delay_s=0)),
            checkpoint=Path(wanted["checkpoint"]),
            trigger=JobTrigger(available_now=wanted["ends"], interval_s=0),
        ),
    )


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
