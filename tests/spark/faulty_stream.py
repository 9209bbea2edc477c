"""A stream with the option ``deduplicate``, and faults that end one of its tasks or its driver.

Run as a program, it is a driver that a fault may kill:

    python -m tests.spark.faulty_stream '{"source": …}'
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plog.client.consumer.simple_consumer import SimpleConsumer
from plog.types import TopicPartition
from tests.helpers.eventually import eventually
from tests.spark.connector import reference_source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

POISON = "poison"
"""The fault happens at the row with this text."""
LATE = "late"
"""Rows that start with this text go to the second output topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What happens once at the row with POISON, when the output has a number of records.

    `kind` is "error", "worker" or "driver": the task fails, its Python worker is killed, or the
    processes of the driver are killed. With "shuffle", the files of shuffles in `folder` are
    deleted, so that Spark repeats the stage. The file `flag` exists after that.
    """

    kind: str
    flag: str
    after: int
    folder: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """What a stream reads and writes."""

    bootstrap_servers: str
    source: str
    target: str
    late: str
    checkpoint: str
    tasks: int | None = None
    """The number of tasks after a shuffle; without it, there is one for each source partition."""

    def start(
        self, spark: SparkSession, fault: Fault | None = None, driver: tuple[int, ...] = ()
    ) -> StreamingQuery:
        """Write what is new in one batch; `driver` are the processes that a fault kills."""
        from pyspark.sql.functions import expr, udf

        # Otherwise, a task would send no row to the Python workers before it has taken all.
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "50")
        reader = spark.readStream.format(reference_source()).options(
            subscribe=self.source, startingOffsets="earliest", includeHeaders="true"
        )
        rows = reader.option("kafka.bootstrap.servers", self.bootstrap_servers).load()
        if self.tasks is not None:
            rows = rows.repartition(self.tasks, "value")
        rows = rows.selectExpr("string(value) AS value", "headers")
        if fault is not None:
            # Without type hints, because Spark would look for those of pandas.
            passing = udf(lambda value: self.passed(value, fault, driver), "string")
            rows = rows.withColumn("value", passing("value"))
        topic = f"if(value LIKE '{LATE}%', '{self.late}', '{self.target}')"
        rows = rows.withColumn("topic", expr(topic))
        writer = rows.writeStream.format("plog").trigger(availableNow=True)
        writer = writer.option("kafka.bootstrap.servers", self.bootstrap_servers)
        writer = writer.options(deduplicate=self.target, checkpointLocation=self.checkpoint)
        return writer.option("kafka.linger.ms", "0").start()

    def passed(self, value: str, fault: Fault, driver: tuple[int, ...]) -> str:
        """Return `value`, and let the fault happen if it is due."""
        if POISON not in value or Path(fault.flag).exists():
            return value
        eventually(lambda: self.count() >= fault.after, f"{fault.after} records in the output")
        Path(fault.flag).touch()
        if fault.kind == "shuffle":
            for path in Path(fault.folder).rglob("shuffle_*.data"):
                path.unlink()
            return value
        if fault.kind == "worker":
            os.kill(os.getpid(), signal.SIGKILL)
        for pid in driver if fault.kind == "driver" else ():
            os.kill(pid, signal.SIGKILL)
        raise RuntimeError("the fault of the test")

    def count(self) -> int:
        """Return the number of records in the output."""
        return sum(self.values(self.target).values()) + sum(self.values(self.late).values())

    def values(self, topic: str) -> Counter[bytes]:
        """Return the values in a topic, which must exist."""
        with SimpleConsumer(bootstrap_servers=self.bootstrap_servers) as consumer:
            parts = [TopicPartition(topic, one.index) for one in consumer.partitions_for(topic)]
            ends = consumer.end_offsets(parts)
            return Counter(
                record.value for one in parts for record in consumer.records(one, 0, ends[one])
            )


def driver_process(stream: Stream, fault: Fault | None, folder: Path) -> list[str]:
    """Return the command of a driver that writes what is new, and survives failed tasks."""
    wanted: dict[str, Any] = {
        "stream": dataclasses.asdict(stream),
        "fault": None if fault is None else dataclasses.asdict(fault),
        "folder": str(folder),
    }
    return [sys.executable, "-m", "tests.spark.faulty_stream", json.dumps(wanted)]


def main(wanted: dict[str, Any]) -> None:
    """Run the driver."""
    from tests.spark.spark_session import spark_session

    fault = None if wanted["fault"] is None else Fault(**wanted["fault"])
    # A task has four attempts.
    with spark_session(Path(wanted["folder"]), master="local[2,4]") as spark:
        jvm = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
        query = Stream(**wanted["stream"]).start(spark, fault, (os.getpid(), jvm))
        query.awaitTermination()
        print(json.dumps({"stage_attempt": last_attempt(spark, query)}))


def last_attempt(spark: SparkSession, query: StreamingQuery) -> int:
    """Return the highest number of an attempt of the query's stages; the first attempt is 0."""
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(query.runId)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    return max((stage.currentAttemptId for stage in stages if stage), default=0)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
