"""Batch queries with ``format("plog")`` return the rows of the official connector."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from plog.client.faces.blocking import Admin, Producer
from plog.records.codec import Record
from plog.types import TopicPartition
from tests.spark.cluster import REJECTED, SOURCES, Cluster
from tests.spark.filled_topic import RECORDS, by_partition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.helpers.programs.apache_kafka import ApacheKafka


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
    found, expected = cluster.outcomes(**options)
    assert found == expected
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
    found, expected = cluster.outcomes(**choice)
    assert found == expected


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
    queries = Cluster(spark, servers)
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
