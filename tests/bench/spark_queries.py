"""A Spark driver for the bench: runs queries that it reads from standard input, one per line.

    python -m tests.bench.spark_queries JARS FOLDER

A query is a JSON object with ``kind``, ``source``, ``options`` and ``rows``. The driver prints a
JSON object with the number of rows for each; spark_loads.py measures its processes meanwhile.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.functions import count, lit
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from plog.cli.spark.installed_packages import spark_home
from plog.cli.spark.linked_home import linked_home
from tests.bench.spark_loads import BATCH_ROWS

_VALUE = "concat(lpad(string(id), 12, '0'), repeat('x', 188)) AS value"


def main() -> None:
    """Run queries until the end of the input."""
    spark = _session(sys.argv[1])
    # Loads of the same bench must not continue each other's checkpoints.
    folder = Path(tempfile.mkdtemp(prefix="spark-", dir=sys.argv[2]))
    spark.dataSource.register(MemorySource)
    print(json.dumps({"ready": True}), flush=True)
    for number, line in enumerate(sys.stdin):
        query = json.loads(line)
        checkpoint = folder / f"checkpoint-{number}"
        print(json.dumps(KINDS[query["kind"]](spark, query, checkpoint)), flush=True)
    spark.stop()


def _session(jars: str) -> SparkSession:
    # As `plog spark` does; docs/spark.md recommends it. The connector has no Python processes.
    os.environ["SPARK_HOME"] = str(linked_home(spark_home(), os.environ))
    builder = SparkSession.builder.master("local[2]").appName("plog-bench")
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.jars": jars,
        "spark.log.level": "ERROR",
        # docs/spark.md recommends it; the connector has no Python workers.
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def read(spark: SparkSession, query: dict[str, Any], _: Path) -> dict[str, Any]:
    """Read a topic and drop its rows."""
    rows = spark.read.format(query["source"]).options(**query["options"]).load()
    counted = Observation()
    _drop(rows.observe(counted, count(lit(1)).alias("rows")))
    return {"rows": counted.get["rows"]}


def write(spark: SparkSession, query: dict[str, Any], _: Path) -> dict[str, Any]:
    """Write generated rows of 200 bytes to a topic."""
    rows = spark.range(query["rows"]).selectExpr(_VALUE)
    rows.write.format(query["source"]).options(**query["options"]).mode("append").save()
    return {"rows": query["rows"]}


def stream(spark: SparkSession, query: dict[str, Any], checkpoint: Path) -> dict[str, Any]:
    """Read a topic as a stream that ends, and drop its rows."""
    reader = spark.readStream.format(query["source"]).options(**query["options"])
    done = _run(reader.load(), checkpoint)
    batches = [dict(json.loads(progress.json)) for progress in done.recentProgress]
    # The first batch starts the workers.
    times = [batch["durationMs"]["triggerExecution"] for batch in batches[1:]]
    return {
        "rows": sum(batch["numInputRows"] for batch in batches),
        "batches": len(batches),
        "batch_ms": median(times) if times else None,
    }


def _run(rows: DataFrame, checkpoint: Path) -> StreamingQuery:
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def _drop(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


KINDS: dict[str, Callable[[SparkSession, dict[str, Any], Path], dict[str, Any]]] = {
    "read": read,
    "stream": stream,
    "write": write,
}


class MemorySource(DataSource):
    """A stream of rows from the worker's memory: what any Python source costs at least."""

    @classmethod
    def name(cls) -> str:
        return "memory-rows"

    def schema(self) -> str:
        return "value binary, offset long"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _MemoryReader(int(self.options["rows"]))


class _MemoryReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, rows: int) -> None:
        self._rows = rows

    def initialOffset(self) -> dict[str, int]:
        return {"offset": 0}

    def latestOffset(self, start: dict[str, int], limit: object) -> dict[str, int]:
        return {"offset": min(self._rows, start["offset"] + BATCH_ROWS)}

    def prepareForTriggerAvailableNow(self) -> None:
        pass

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition((start["offset"], end["offset"]))]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        first, last = partition.value
        offsets = range(first, last)
        columns = [pyarrow.array([b"x" * 200] * len(offsets)), pyarrow.array(offsets)]
        yield pyarrow.RecordBatch.from_arrays(columns, names=["value", "offset"])


if __name__ == "__main__":
    main()
