"""A job on a cluster, which test_standalone.py runs with ``plog spark``.

It reads a topic, writes its rows to another topic, writes the stream of the topic to a third one
without duplicates, and stores it with the job `warehouse`. In the batch and in the stream, one task
waits in the middle of its rows until its executor is killed. The executors have no `tests`: they
receive the functions by value.

    standalone_job.py SERVERS SOURCE COPY ONCE FOLDER ROWS
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from plog.spark.jobs.job_source import JobSource, JobTrigger
from plog.spark.jobs.warehouse.job import run_warehouse
from plog.spark.jobs.warehouse.warehouse_options import TableOptions, WarehouseOptions

_, servers, source, copy, once, folder, least = sys.argv
SCHEMA = "partition int, offset long, value binary, file string"
spark = SparkSession.builder.getOrCreate()
# Otherwise, a task would send no row to the Python workers before it has taken all.
spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "50")


def count(topic: str) -> int:
    """Return the number of records in a topic."""
    from plog.client.consumer.simple_consumer import SimpleConsumer
    from plog.types import TopicPartition

    with SimpleConsumer(bootstrap_servers=servers) as consumer:
        parts = [TopicPartition(topic, one.index) for one in consumer.partitions_for(topic)]
        return sum(consumer.end_offsets(parts).values())


def killed_in(step: str, wanted: int) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return a function that adds the file of plog to each row.

    At the row with the value "poison", it waits until the topic `once` has `wanted` records. Then
    it writes the number of its process to the file `step`, and waits until it is killed. If the
    file exists, it does not wait.
    """
    flag, new = Path(folder, step), Path(folder, f"{step}.new")

    def passed(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow

        import plog

        for batch in batches:
            if b"poison" in batch.column("value").to_pylist() and not flag.exists():
                pause = threading.Event()
                while wanted > count(once):
                    pause.wait(0.05)
                new.write_text(str(os.getpid()))
                new.rename(flag)
                pause.wait()
            files = pyarrow.array([plog.__file__] * batch.num_rows, "string")
            yield batch.append_column("file", files)

    return passed


def selected(reader: Any) -> DataFrame:
    """Return the rows that `reader` reads from `source`."""
    reader = reader.format("plog").option("kafka.bootstrap.servers", servers)
    reader = reader.option("subscribe", source).option("startingOffsets", "earliest")
    return reader.option("minPartitions", "2").load().select("partition", "offset", "value")


def written(writer: Any, topic: str) -> Any:
    """Return a writer to `topic`."""
    return writer.format("plog").option("kafka.bootstrap.servers", servers).option("topic", topic)


batch = selected(spark.read).mapInArrow(killed_in("batch", 0), SCHEMA)
found = sorted((row.partition, row.offset, bytes(row.value).decode()) for row in batch.collect())
Path(folder, "rows.json").write_text(json.dumps(found))
files = [row.file for row in batch.select("file").distinct().collect()]
Path(folder, "files.json").write_text(json.dumps(files))
rows = selected(spark.read).selectExpr("upper(cast(value as string)) AS value")
written(rows.write, copy).mode("append").save()
stream = selected(spark.readStream).mapInArrow(killed_in("stream", int(least)), SCHEMA)
writer = written(stream.select("value").writeStream, once).trigger(availableNow=True)
writer = writer.option("deduplicate", once).option("kafka.linger.ms", "0")
writer.option("checkpointLocation", f"{folder}/checkpoint").start().awaitTermination()
run_warehouse(
    spark,
    WarehouseOptions(
        source=JobSource(bootstrap_servers=servers, topics=(source,)),
        table=TableOptions(output=Path(folder, "warehouse")),
        checkpoint=Path(folder, "warehouse-checkpoint"),
        trigger=JobTrigger(available_now=True),
    ),
)
