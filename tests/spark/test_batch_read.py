"""Batch queries with ``format("plog")`` return the rows of the official connector."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from plog.client.faces.blocking import Admin, Producer
from plog.client.simple import SimpleClient
from plog.records.batch import Compression
from plog.records.codec import Record
from plog.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from plogd.testing.broker_process import BrokerProcess
    from tests.helpers.programs.apache_kafka import ApacheKafka

SOURCES = ("plog", "kafka")
REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class Queries:
    """Queries to a cluster with either source."""

    spark: SparkSession
    bootstrap_servers: str

    def query(self, source: str, **options: str) -> DataFrame:
        reader = self.spark.read.format(source)
        reader = reader.option("kafka.bootstrap.servers", self.bootstrap_servers)
        return reader.options(**options).load()

    def rows(self, source: str, **options: str) -> list[tuple[Any, ...]]:
        """Return the rows as tuples, sorted by topic, partition and offset."""
        found = self.query(source, **options).collect()
        return sorted(map(tuple, found), key=lambda row: row[2:5])

    def outcome(self, source: str, **options: str) -> list[tuple[Any, ...]] | str:
        """Return the rows, or REJECTED if the query fails."""
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        try:
            return self.rows(source, **options)
        except (PySparkException, Py4JJavaError):
            return REJECTED


@dataclass(frozen=True, slots=True)
class Cluster(Queries):
    """The shared broker, with queries to it."""

    broker: BrokerProcess

    def create(self, topic: str, partitions: int = 1, config: dict[str, str] | None = None) -> None:
        # The tests use old timestamps, and a slow run may outlast the first retention sweep.
        self.broker.create_topic(topic, partitions, {"retention.ms": "-1"} | (config or {}))

    def produce(self, topic: str, partition: int, records: Sequence[Record], **more: Any) -> None:
        host, _, port = self.bootstrap_servers.rpartition(":")
        with SimpleClient(host, int(port)) as client:
            client.produce(topic, partition, records, **more)


@pytest.fixture(scope="session")
def cluster(spark: SparkSession, broker: BrokerProcess) -> Cluster:
    return Cluster(spark, broker.bootstrap_servers, broker)


RECORDS = [
    Record(
        timestamp=1_000 * (offset + 1),
        key=None if offset % 3 == 0 else f"key-{offset}".encode(),
        value=None if offset % 5 == 0 else b"" if offset % 7 == 0 else bytes([offset]) * 9,
        headers=(("h", b"x"), ("h", None), ("é", b"")) if offset % 4 == 0 else (),
    )
    for offset in range(40)
]
"""The records of each partition of `filled`: one second apart, with nulls and headers."""


@pytest.fixture(scope="session")
def filled(cluster: Cluster) -> str:
    """A topic with RECORDS in its partitions 0 and 1, half of them in partition 2, none in 3."""
    cluster.create("filled", 4)
    for partition, records in enumerate((RECORDS, RECORDS, RECORDS[:20])):
        for start in range(0, len(records), 10):
            compression = list(Compression)[(start // 10 + partition) % len(Compression)]
            part = records[start : start + 10]
            cluster.produce("filled", partition, part, compression=compression)
    return "filled"


def by_partition(**numbers: int) -> str:
    """Return JSON for the topic `filled`: p0=5 is partition 0 with 5."""
    return json.dumps({"filled": {name[1:]: number for name, number in numbers.items()}})


ALL_EARLIEST = by_partition(p0=-2, p1=-2, p2=-2, p3=-2)
OPTIONS: dict[str, dict[str, str]] = {
    "defaults": {},
    "headers": {"includeHeaders": "true"},
    "lower case": {"includeheaders": "TRUE"},
    "min partitions": {"minPartitions": "9"},
    "max records": {"maxRecordsPerPartition": "7"},
    "offsets": {
        "startingOffsets": by_partition(p0=5, p1=-2, p2=19, p3=0),
        "endingOffsets": by_partition(p0=12, p1=-1, p2=20, p3=0),
    },
    "missing offsets": {"startingOffsets": by_partition(p0=5)},
    "other partition": {"startingOffsets": by_partition(p0=5, p1=0, p2=0, p3=0, p4=0)},
    "offset past the end": {
        "endingOffsets": by_partition(p0=41, p1=-1, p2=-1, p3=-1),
        "kafkaConsumer.pollTimeoutMs": "2000",
    },
    "offset past the end, lenient": {
        "endingOffsets": by_partition(p0=41, p1=-1, p2=-1, p3=-1),
        "failOnDataLoss": "false",
        "kafkaConsumer.pollTimeoutMs": "2000",
    },
    "latest": {"startingOffsets": "latest"},
    "earliest": {"endingOffsets": "earliest"},
    "time without record": {"startingTimestamp": "15500"},
    "time without record, latest": {
        "startingTimestamp": "15500",
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "ending time": {"endingTimestamp": "15500"},
    "times": {
        "startingOffsetsByTimestamp": by_partition(p0=3000, p1=0, p2=19_001, p3=0),
        "endingOffsetsByTimestamp": by_partition(p0=9001, p1=39_999, p2=99_999, p3=0),
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "time and offsets": {
        "startingTimestamp": "35000",
        "startingOffsetsByTimestampStrategy": "latest",
        "startingOffsets": ALL_EARLIEST,
    },
    "group": {"kafka.group.id": "mine", "groupIdPrefix": "x"},
    "reset": {"kafka.auto.offset.reset": "earliest"},
    "commit": {"kafka.enable.auto.commit": "true"},
    "deserializer": {"kafka.key.deserializer": "x"},
    "interceptor": {"kafka.interceptor.classes": "x"},
    "no partitions": {"minPartitions": "0"},
    "not a boolean": {"failOnDataLoss": "yes"},
    "two choices": {"subscribePattern": "filled"},
}
EXPECTED_REJECTED = {
    "missing offsets",
    "other partition",
    "offset past the end",
    "latest",
    "earliest",
    "time without record",
    "reset",
    "commit",
    "deserializer",
    "interceptor",
    "no partitions",
    "not a boolean",
    "two choices",
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_have_the_effect_that_they_have_on_the_connector(
    cluster: Cluster, filled: str, name: str
) -> None:
    options = {"subscribe": filled, **OPTIONS[name]}
    found = cluster.outcome("plog", **options)
    assert found == cluster.outcome("kafka", **options)
    assert (found == REJECTED) == (name in EXPECTED_REJECTED)


@pytest.mark.parametrize(
    "choice",
    [
        {"assign": '{"filled":[2,0]}'},
        {"subscribePattern": "fill.d"},
        {"subscribePattern": "ill"},
        {"subscribePattern": "^ill"},
        {"subscribe": "filled, filled"},
        {"subscribe": "no-such-topic"},
        {},
    ],
    ids=str,
)
def test_choice_of_topics_equals_that_of_the_connector(
    cluster: Cluster, filled: str, choice: dict[str, str]
) -> None:
    found = cluster.outcome("plog", **choice)
    assert found == cluster.outcome("kafka", **choice)


def test_rows_are_the_records(cluster: Cluster, filled: str) -> None:
    rows = cluster.rows("plog", subscribe=filled, includeHeaders="true")
    assert len(rows) == 100
    for row in rows:
        record = RECORDS[row[4]]
        headers = [(name, value) for name, value in record.headers]
        assert (row[0], row[1]) == (record.key, record.value)
        assert row[2] == filled
        # Spark converts timestamps to local times of the driver.
        assert row[5].timestamp() * 1000 == record.timestamp
        assert row[6] == 0
        assert (None if row[7] is None else list(map(tuple, row[7]))) == (headers or None)


def test_schema_equals_that_of_the_connector(cluster: Cluster, filled: str) -> None:
    for headers in ("false", "true"):
        options = {"subscribe": filled, "includeHeaders": headers}
        mine, theirs = (cluster.query(source, **options).schema for source in SOURCES)
        assert mine == theirs


def test_min_partitions_is_reached_and_tasks_are_in_offset_order(
    cluster: Cluster, filled: str
) -> None:
    query = cluster.query("plog", subscribe=filled, minPartitions="11")
    tasks = query.select("partition", "offset").rdd.glom().collect()
    assert len(tasks) == 11
    for rows in tasks:
        assert len({row.partition for row in rows}) == 1
        offsets = [row.offset for row in rows]
        assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))


def test_max_bytes_divides_large_partitions(cluster: Cluster, new_topic: Callable[[], str]) -> None:
    topic = new_topic()
    cluster.create(topic)
    cluster.produce(topic, 0, [Record(timestamp=1, value=bytes(10_000))] * 40)
    query = cluster.query("plog", subscribe=topic, maxBytesPerPartition="100000")
    sizes = [len(rows) for rows in query.select("offset").rdd.glom().collect()]
    assert sum(sizes) == 40
    assert 4 <= len(sizes) <= 6


def test_empty_topic_has_no_rows(cluster: Cluster, topic: str) -> None:
    cluster.create(topic, 2)
    assert cluster.rows("plog", subscribe=topic) == []


def test_query_that_stops_early_does_not_disturb_the_next(cluster: Cluster, filled: str) -> None:
    assert cluster.query("plog", subscribe=filled).limit(3).count() == 3
    assert len(cluster.query("plog", subscribe=filled).take(5)) == 5
    assert cluster.query("plog", subscribe=filled).count() == 100


def test_deleted_records_are_reported_or_skipped(cluster: Cluster, topic: str) -> None:
    cluster.create(topic)
    cluster.produce(topic, 0, [Record(timestamp=1, value=b"%d" % n) for n in range(10)])
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.delete_records({TopicPartition(topic, 0): 4}).raise_first()
    options = {"subscribe": topic, "startingOffsets": f'{{"{topic}":{{"0":2}}}}'}
    with pytest.raises(
        Exception, match=rf"offsets 2 to 3 of {topic}-0 are missing.*failOnDataLoss"
    ):
        cluster.rows("plog", **options)
    options["failOnDataLoss"] = "false"
    rows = cluster.rows("plog", **options)
    assert [row[4] for row in rows] == list(range(4, 10))
    assert rows == cluster.rows("kafka", **options)


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_transactions_of_kafka_are_read_as_by_the_connector(
    spark: SparkSession, kafka: ApacheKafka, topic: str, level: str
) -> None:
    """Markers of transactions leave gaps in the offsets, also at the end."""
    servers = kafka.bootstrap_servers
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topic(topic, partitions=1)
    with Producer(bootstrap_servers=servers, transactional_id=topic) as producer:
        producer.init_transactions()
        for number in range(5):
            producer.begin_transaction()
            for part in range(3):
                producer.send(topic, b"%d-%d" % (number, part), partition=0)
            if number % 2:
                producer.flush()
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    options = {"subscribe": topic, "kafka.isolation.level": level, "minPartitions": "4"}
    queries = Queries(spark, servers)
    rows = queries.rows("plog", **options)
    assert len(rows) == (9 if level == "read_committed" else 15)
    assert rows == queries.rows("kafka", **options)


def test_large_record_is_read(cluster: Cluster, topic: str) -> None:
    size = 50_000_000
    cluster.create(topic, config={"max.message.bytes": str(2 * size)})
    cluster.produce(topic, 0, [Record(timestamp=1, value=b"x" * size)])
    query = cluster.query("plog", subscribe=topic).selectExpr("length(value) AS size")
    assert [row.size for row in query.collect()] == [size]


def test_misspelled_option_is_reported_with_the_right_name(cluster: Cluster, filled: str) -> None:
    with pytest.raises(Exception, match=r"did you mean startingOffsets\?"):
        cluster.rows("plog", subscribe=filled, startingOfsets="earliest")


def test_schema_of_the_application_is_refused(cluster: Cluster, filled: str) -> None:
    reader = cluster.spark.read.format("plog").schema("value string")
    reader = reader.option("kafka.bootstrap.servers", cluster.bootstrap_servers)
    with pytest.raises(Exception, match="remove the schema"):
        reader.option("subscribe", filled).load().collect()
