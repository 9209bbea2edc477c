"""Streaming queries with ``format("plog")``: batches, checkpoints, lag and lost data."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from plog.client.faces.blocking import Admin
from plog.records.codec import Record
from plog.types import TopicPartition
from tests.spark.cluster import SOURCES, Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from plogd.testing.broker_process import BrokerProcess

EACH_SOURCE = pytest.mark.parametrize("source", SOURCES)


@dataclass
class Stream:
    """A streaming query from one topic to Parquet files, which can be stopped and continued."""

    cluster: Cluster
    topic: str
    folder: Path

    def start(
        self, source: str = "plog", *, trigger: dict[str, Any] | None = None, **options: str
    ) -> StreamingQuery:
        chosen = {"subscribe": self.topic, "startingOffsets": "earliest"} | options
        rows = self.cluster.stream(source, **chosen)
        writer = rows.selectExpr("partition", "offset", "value").writeStream.format("parquet")
        writer = writer.option("path", str(self.folder / "rows"))
        writer = writer.option("checkpointLocation", str(self.folder / "checkpoint"))
        return writer.trigger(**(trigger or {"processingTime": "50 milliseconds"})).start()

    def run(self, source: str = "plog", **options: str) -> list[dict[str, Any]]:
        """Read all that there is, and return the progress of each batch."""
        query = self.start(source, trigger={"availableNow": True}, **options)
        query.awaitTermination()
        return [dict(json.loads(progress.json)) for progress in query.recentProgress]

    def produce(self, *values: str, partition: int = 0) -> None:
        records = [Record(timestamp=1, key=None, value=value.encode()) for value in values]
        self.cluster.produce(self.topic, partition, records)

    def values(self) -> list[str]:
        """Return the values that the query has written, in the order of their offsets."""
        rows = self.cluster.spark.read.parquet(str(self.folder / "rows")).collect()
        return [bytes(row.value).decode() for row in sorted(rows)]

    def wait_until(self, query: StreamingQuery, number: int) -> None:
        """Wait until the query has processed `number` rows."""
        while sum(progress.numInputRows for progress in query.recentProgress) < number:
            assert query.isActive, query.exception()
            query.awaitTermination(0.1)

    def saved(self, batch: int) -> dict[str, Any]:
        """Return the end of a batch in the checkpoint."""
        text = (self.folder / "checkpoint" / "offsets" / str(batch)).read_text()
        return dict(json.loads(text.splitlines()[-1]))


@pytest.fixture
def stream(cluster: Cluster, new_topic: Callable[[], str], tmp_path: Path) -> Stream:
    topic = new_topic()
    cluster.create(topic, 2)
    return Stream(cluster, topic, tmp_path)


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[Admin]:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        yield admin


@EACH_SOURCE
def test_available_now_reads_what_there_is_in_batches(stream: Stream, source: str) -> None:
    stream.produce(*(f"a{number}" for number in range(8)))
    stream.produce("b0", "b1", partition=1)
    progress = stream.run(source, maxOffsetsPerTrigger="5")
    assert [batch["numInputRows"] for batch in progress if batch["numInputRows"]] == [5, 5]
    assert stream.values() == [f"a{number}" for number in range(8)] + ["b0", "b1"]
    stream.run(source)
    stream.produce("b2", partition=1)
    stream.run(source)
    assert stream.values()[-1] == "b2"
    assert len(stream.values()) == 11


def test_query_of_one_source_continues_with_the_other(stream: Stream) -> None:
    for number, source in enumerate(("plog", "kafka", "plog")):
        stream.produce(f"a{number}")
        stream.produce(f"b{number}", partition=1)
        stream.run(source)
    assert stream.values() == ["a0", "a1", "a2", "b0", "b1", "b2"]


@pytest.mark.parametrize(("first", "second"), [SOURCES, SOURCES[::-1]])
def test_unfinished_batch_is_repeated_by_the_other_source(
    stream: Stream, first: str, second: str
) -> None:
    """Its rows are those between the saved offsets, and later records are not among them."""
    stream.produce("a0", "a1")
    stream.run(first)
    stream.produce("a2")
    stream.run(first)
    # As if the driver had been killed before it finished the last batch.
    commits = stream.folder / "checkpoint" / "commits"
    last = max(int(file.name) for file in commits.glob("[0-9]*"))
    for folder in (commits, stream.folder / "rows" / "_spark_metadata"):
        (folder / str(last)).unlink()
        (folder / f".{last}.crc").unlink()
    stream.produce("a3")
    progress = stream.run(second)
    assert [batch["numInputRows"] for batch in progress if batch["numInputRows"]] == [1, 1]
    assert stream.values() == ["a0", "a1", "a2", "a3"]


def test_stream_reads_new_records_and_new_partitions(stream: Stream, admin: Admin) -> None:
    stream.produce("a0")
    query = stream.start()
    try:
        stream.wait_until(query, 1)
        stream.produce("a1")
        stream.wait_until(query, 2)
        admin.create_partitions({stream.topic: 3}).raise_first()
        stream.produce("c0", partition=2)
        stream.wait_until(query, 3)
    finally:
        query.stop()
    assert stream.values() == ["a0", "a1", "c0"]


def test_restart_in_the_first_batch_keeps_the_latest_offset(stream: Stream) -> None:
    stream.produce("old")
    query = stream.start(startingOffsets="latest")
    try:
        while not query.recentProgress:
            assert query.isActive, query.exception()
            query.awaitTermination(0.1)
    finally:
        query.stop()
    assert stream.saved(0) == {stream.topic: {"0": 1, "1": 0}}
    for file in (stream.folder / "checkpoint" / "commits").glob("*0*"):
        file.unlink()
    stream.produce("new")
    stream.run(startingOffsets="latest")
    assert stream.values() == ["new"]


def test_progress_shows_the_lag(stream: Stream) -> None:
    stream.produce(*"abcdefgh")
    batches = stream.run(maxOffsetsPerTrigger="4")
    first = next(batch["sources"][0] for batch in batches if batch["numInputRows"])
    assert json.loads(json.dumps(first["endOffset"])) == {stream.topic: {"0": 4, "1": 0}}
    assert json.loads(json.dumps(first["latestOffset"])) == {stream.topic: {"0": 8, "1": 0}}


def test_progress_is_committed_to_a_group(stream: Stream, admin: Admin) -> None:
    group = f"lag-of-{stream.topic}"
    stream.produce("a0", "a1")
    stream.run(commitGroup=group)
    a, b = (TopicPartition(stream.topic, number) for number in (0, 1))
    committed = {
        partition: found and found.offset for partition, found in admin.group_offsets(group).items()
    }
    assert committed == {a: 2, b: 0}


def test_tasks_follow_the_limits_of_a_task(stream: Stream) -> None:
    stream.produce(*(str(number) for number in range(100)))
    stream.run(maxRecordsPerPartition="30", minPartitions="5")
    files = list((stream.folder / "rows").glob("*.parquet"))
    assert len(files) == 1 + 5  # The first batch is empty.
    assert len(stream.values()) == 100


# -- lost data ------------------------------------------------------------------------------------


def failure(query: StreamingQuery) -> str:
    from pyspark.errors import StreamingQueryException

    with pytest.raises(StreamingQueryException) as caught:
        query.awaitTermination()
    return str(caught.value)


def test_deleted_records_fail_the_query(stream: Stream, admin: Admin) -> None:
    stream.produce("a0")
    stream.run()
    stream.produce(*"abcdef")
    admin.delete_records({TopicPartition(stream.topic, 0): 4}).raise_first()
    message = failure(stream.start())
    assert f"offsets 1 to 3 of {stream.topic}-0 are missing" in message
    assert "set failOnDataLoss=false to continue" in message
    stream.run(failOnDataLoss="false")
    assert stream.values() == ["a0", "d", "e", "f"]


def test_recreated_topic_fails_a_running_query(stream: Stream, admin: Admin) -> None:
    stream.produce("a0")
    query = stream.start()
    try:
        stream.wait_until(query, 1)
        admin.delete_topics([stream.topic]).raise_first()
        stream.cluster.create(stream.topic, 2)
        stream.produce("n0", "n1", "n2")
        message = failure(query)
    finally:
        query.stop()
    assert f"of {stream.topic}-0 are missing" in message


def test_recreated_topic_fails_a_restarted_query(stream: Stream, admin: Admin) -> None:
    stream.produce("a0", "a1")
    stream.run()
    admin.delete_topics([stream.topic]).raise_first()
    stream.cluster.create(stream.topic, 2)
    stream.produce("n0")
    assert "its log ends at 1, below the position of the query" in failure(stream.start())


def test_deleted_topic_fails_the_query(stream: Stream, admin: Admin) -> None:
    stream.produce("a0")
    stream.run()
    admin.delete_topics([stream.topic]).raise_first()
    assert "the partition does not exist, because its topic was deleted" in failure(stream.start())


def test_options_of_batch_queries_are_rejected(stream: Stream) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match="endingOffsets is set: a stream has no end"):
        stream.run(endingOffsets="latest")


# -- faults ---------------------------------------------------------------------------------------


def test_stream_survives_a_restart_of_the_broker(
    spark: SparkSession, start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    broker = start_broker()
    stream = Stream(Cluster(spark, broker.bootstrap_servers), "clicks", tmp_path)
    stream.cluster.create("clicks", 2)
    stream.produce("a0")
    query = stream.start()
    try:
        stream.wait_until(query, 1)
        broker.kill()
        broker.start()
        stream.produce("a1")
        stream.wait_until(query, 2)
    finally:
        query.stop()
    assert stream.values() == ["a0", "a1"]


def test_query_continues_after_a_worker_was_killed(stream: Stream, tmp_path: Path) -> None:
    """The repeated batch reads the same records. (On a cluster, Spark repeats only the task.)"""
    from pyspark.errors import StreamingQueryException
    from pyspark.sql.functions import col, udf

    marker = tmp_path / "killed"

    def kill_once(value: bytes) -> bytes:
        if value == b"50" and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return value

    stream.produce(*(str(number) for number in range(100)))
    rows = stream.cluster.stream("plog", subscribe=stream.topic, startingOffsets="earliest")
    rows = rows.select("partition", "offset", udf(kill_once, "binary")(col("value")).alias("value"))
    writer = rows.writeStream.format("parquet").option("path", str(tmp_path / "rows"))
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(StreamingQueryException, match="crashed"):
        writer.trigger(availableNow=True).start().awaitTermination()
    writer.trigger(availableNow=True).start().awaitTermination()
    assert stream.values() == [str(number) for number in range(100)]
