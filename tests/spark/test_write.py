"""Queries that write with ``format("plog")`` leave the records of the official connector."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.cluster import SOURCES, Cluster
from tests.spark.connector import need_connector, reference_source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS = """
    SELECT if(id % 3 = 0, NULL, concat('key-', id)) AS key,
           if(id % 5 = 0, NULL, cast(concat('värde ', id) AS binary)) AS value,
           cast(if(id % 2 = 0, 1, NULL) AS int) AS partition,
           if(id % 4 = 0,
              array(named_struct('key', 'h', 'value', cast('x' AS binary)),
                    named_struct('key', 'é', 'value', cast(NULL AS binary))),
              NULL) AS headers,
           id AS ignored
    FROM range(200)
"""


def write(
    cluster: Cluster, source: str, rows: DataFrame, mode: str = "append", **options: str
) -> None:
    if source == "kafka":
        need_connector()
    writer = rows.write.format(source).mode(mode).options(**options)
    writer.option("kafka.bootstrap.servers", cluster.bootstrap_servers).save()


def written(cluster: Cluster, topic: str) -> list[tuple[Any, ...]]:
    """Return key, value, partition and headers of all records; the rows of a task keep no order."""
    rows = cluster.rows(reference_source(), subscribe=topic, includeHeaders="true")
    return sorted(((row[0], row[1], row[3], row[7]) for row in rows), key=repr)


def test_records_equal_those_of_the_connector(
    cluster: Cluster, new_topic: Callable[[], str]
) -> None:
    # Records without a key and a partition go to the partition that the producer prefers.
    rows = cluster.spark.sql(ROWS).where("key IS NOT NULL OR partition IS NOT NULL")
    found = []
    for source in SOURCES:
        topic = new_topic()
        cluster.create(topic, 3)
        write(cluster, source, rows, topic=topic)
        found.append(written(cluster, topic))
    assert len(found[0]) == rows.count()
    assert found[0] == found[1]


def test_column_chooses_the_topic_unless_the_option_is_set(
    cluster: Cluster, new_topic: Callable[[], str]
) -> None:
    first, second = new_topic(), new_topic()
    for topic in (first, second):
        cluster.create(topic)
    choice = f"if(id < 4, '{first}', '{second}') AS topic"
    rows = cluster.spark.range(10).selectExpr("string(id) AS value", choice)
    write(cluster, "plog", rows)
    assert [len(written(cluster, topic)) for topic in (first, second)] == [4, 6]
    write(cluster, "plog", rows, topic=first)
    assert [len(written(cluster, topic)) for topic in (first, second)] == [14, 6]


VALUE = "'v' AS value"
TO_T = {"topic": "t"}
REJECTED: dict[str, tuple[list[str], dict[str, str], str]] = {
    "no topic": ([VALUE], {}, "the topic is missing"),
    "null topic": ([VALUE, "string(NULL) AS topic"], {}, "its topic is null"),
    "no value": (["'k' AS key"], TO_T, "there is no column value"),
    "wrong type": (["1 AS value"], TO_T, "the column value has the type int"),
    "serializer": ([VALUE], {**TO_T, "kafka.value.serializer": "x"}, "is not supported"),
    "negative partition": ([VALUE, "-1 AS partition"], TO_T, "is negative"),
    "null header": (
        [VALUE, "array(named_struct('key', string(NULL), 'value', binary('x'))) AS headers"],
        TO_T,
        "the name of a header is null",
    ),
    "misspelled": ([VALUE], {"topics": "t"}, r"did you mean topic\?"),
}


@pytest.mark.parametrize("name", REJECTED)
def test_rows_that_the_connector_rejects_are_rejected(cluster: Cluster, name: str) -> None:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    columns, options, message = REJECTED[name]
    rows = cluster.spark.range(1).selectExpr(*columns)
    with pytest.raises((PySparkException, Py4JJavaError), match=message):
        write(cluster, "plog", rows, **options)
    with pytest.raises((PySparkException, Py4JJavaError)):
        write(cluster, "kafka", rows, **options)


def test_overwriting_a_topic_is_refused(cluster: Cluster, topic: str) -> None:
    rows = cluster.spark.sql("SELECT 'v' AS value")
    with pytest.raises(Exception, match="a topic only grows"):
        write(cluster, "plog", rows, mode="overwrite", topic=topic)


def test_stream_writes_each_row_once(
    cluster: Cluster, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    source, target = new_topic(), new_topic()
    for topic in (source, target):
        cluster.create(topic, 2)
    write(cluster, reference_source(), cluster.spark.sql(ROWS), topic=source)

    def run() -> int:
        """Write what is new, and return the number of batches."""
        options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "80"}
        rows = cluster.stream(reference_source(), subscribe=source, **options)
        writer = rows.selectExpr("key", "value", f"'{target}' AS topic").writeStream
        writer = writer.format("plog").trigger(availableNow=True)
        writer = writer.option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        query = writer.option("checkpointLocation", str(tmp_path)).start()
        query.awaitTermination()
        return sum(bool(batch.numInputRows) for batch in query.recentProgress)

    assert run() == 3
    assert len(written(cluster, target)) == 200
    run()
    assert len(written(cluster, target)) == 200
    write(cluster, reference_source(), cluster.spark.sql(ROWS), topic=source)
    run()
    pairs = [
        sorted((row[:2] for row in written(cluster, topic)), key=repr) for topic in (source, target)
    ]
    assert len(pairs[1]) == 400
    assert pairs[0] == pairs[1]
