"""`decode` and `dead_letters` on rows of both sources, and on rows that have no source."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from plog.records.record import Record
from plog.settings import ConfigError
from plog.spark import dead_letters, decode
from tests.spark.cluster import SOURCES, Cluster
from tests.spark.connector import reference_source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "id long, name string, at timestamp"
AVRO = {
    "type": "record",
    "name": "order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "map", "values": "int"}},
        {"name": "note", "type": ["null", "string"]},
    ],
}


def rows_of(spark: SparkSession, *values: bytes | None) -> DataFrame:
    return spark.createDataFrame([(value,) for value in values], "value binary").coalesce(1)


def decoded(df: DataFrame) -> list[tuple[Any, ...]]:
    """Return the rows without their first column, which is the value."""
    return [tuple(row)[1:] for row in df.collect()]


def test_json_becomes_columns_with_types(spark: SparkSession) -> None:
    rows = rows_of(spark, b'{"name": "a", "id": 1, "at": "2026-01-02T03:04:05Z"}', b"{}")
    found = decode(rows, "json", SCHEMA)
    assert found.columns == ["value", "id", "name", "at", "_corrupt_record", "_error"]
    assert found.select("id", "name", found.at.cast("string")).collect() == [
        (1, "a", "2026-01-02 03:04:05"),
        (None, None, None),
    ]
    assert [row[-2:] for row in decoded(found)] == [(None, None)] * 2


@pytest.mark.parametrize(
    ("value", "name"),
    [(b"", None), (b"  ", None), (b"no json", None), (b'{"id": 1', None), (b'{"id": "x"}', None)],
)
def test_value_that_is_not_json_is_kept_with_the_reason(
    spark: SparkSession, value: bytes, name: str | None
) -> None:
    found = decode(rows_of(spark, value, b'{"id": 1}', None), "json", "id long, name string")
    assert decoded(found) == [
        (None, name, value.decode(), "the value is not JSON that fits the schema"),
        (1, None, None, None),
        (None, None, None, None),
    ]


def test_fields_that_fit_are_kept_next_to_one_that_does_not(spark: SparkSession) -> None:
    found = decode(rows_of(spark, b'{"id": "x", "name": "a"}'), "json", "id long, name string")
    assert decoded(found) == [
        (None, "a", '{"id": "x", "name": "a"}', "the value is not JSON that fits the schema")
    ]


@pytest.mark.parametrize("value_format", ["json", "csv", "text"])
def test_value_that_is_not_text_is_kept_with_the_reason(
    spark: SparkSession, value_format: str
) -> None:
    found = decode(rows_of(spark, b'{"a": "\xff"}', None), value_format, "name string")
    assert decoded(found) == [
        (None, '{"a": "\ufffd"}', "the value is not UTF-8 text"),
        (None, None, None),
    ]


def test_csv_becomes_columns_with_types(spark: SparkSession) -> None:
    rows = rows_of(spark, b'1;"a;b"', b"x;y", b"1", b"1;2;3", None)
    found = decode(rows, "csv", "id long, `full name` string", options={"sep": ";"})
    reason = "the value is not CSV that fits the schema"
    assert decoded(found) == [
        (1, "a;b", None, None),
        (None, "y", "x;y", reason),
        (1, None, "1", reason),
        (1, "2", "1;2;3", reason),
        (None, None, None, None),
    ]


def test_text_becomes_a_column(spark: SparkSession) -> None:
    rows = rows_of(spark, "värde".encode(), b"", None)
    found = decode(rows, "text")
    assert found.columns == ["value", "text", "_corrupt_record", "_error"]
    assert decoded(found) == [("värde", None, None), ("", None, None), (None, None, None)]
    assert decode(rows, "text", "line string").columns[1] == "line"


def avro(record: dict[str, Any]) -> bytes:
    fastavro = pytest.importorskip("fastavro")
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(AVRO), record)
    return stream.getvalue()


def test_avro_becomes_columns_with_types(spark: SparkSession) -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, 6000, UTC)
    good = avro({"id": 1, "at": at, "tags": {"a": 2}, "note": None})
    found = decode(rows_of(spark, good, good[:-1], None), "avro", json.dumps(AVRO))
    assert [field.dataType.simpleString() for field in found.schema.fields[1:5]] == [
        *("bigint", "timestamp", "map<string,int>", "string")
    ]
    # Spark returns local times without a zone.
    assert decoded(found.withColumn("at", found.at.cast("string"))) == [
        (1, "2026-01-02 03:04:05.006", {"a": 2}, None, None, None),
        (
            *(None, None, None, None, good[:-1].hex()),
            "the value is not Avro that fits the schema: it ends within the record",
        ),
        (None, None, None, None, None, None),
    ]


def test_fields_can_become_one_column(spark: SparkSession) -> None:
    rows = rows_of(spark, b'{"id": 1, "value": "v"}', None)
    with pytest.raises(ConfigError, match='value already exists; set into="record"'):
        decode(rows, "json", "id long, value string")
    found = decode(rows, "json", "id long, value string", into="order")
    assert decoded(found) == [((1, "v"), None, None), (None, None, None)]


def test_key_and_value_can_both_be_decoded(spark: SparkSession) -> None:
    pairs = [(b"1", b'{"id": 1}'), (b"\xff", b'{"id": 2}'), (b"3", b"{"), (b"\xff", b"{")]
    rows = spark.createDataFrame(pairs, "key binary, value binary").coalesce(1)
    found = decode(decode(rows, "text", "user string", column="key"), "json", "id long")
    assert [tuple(row)[2:] for row in found.collect()] == [
        ("1", 1, None, None),
        (None, 2, "\ufffd", "the key is not UTF-8 text"),
        ("3", None, "{", "the value is not JSON that fits the schema"),
        (None, None, "\ufffd", "the key is not UTF-8 text"),
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("jsn", SCHEMA), "did you mean json"),
        (("json",), "the schema is missing"),
        (("json", "long"), "has no names"),
        (("json", "_corrupt_record string"), "has no columns"),
        (("text", "id long"), "the schema is not one string column"),
        (("avro", "id long"), "the Avro schema is not JSON"),
        (("avro",), "the schema is not text"),
    ],
)
def test_wrong_argument_is_refused(
    spark: SparkSession, arguments: Sequence[str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        decode(rows_of(spark, b""), *arguments)


@pytest.mark.parametrize("source", SOURCES)
def test_dead_letters_have_the_place_and_the_reason(
    cluster: Cluster, new_topic: Callable[[], str], source: str
) -> None:
    topic, dead = new_topic(), new_topic()
    for name in (topic, dead):
        cluster.create(name)
    headers = (("trace", b"7"),)
    records = [
        Record(timestamp=1000, key=b"a", value=b'{"id": 1}', headers=headers),
        Record(timestamp=2000, key=None, value=b"{", headers=headers),
        Record(timestamp=3000, key=b"c", value=None, headers=()),
        Record(timestamp=4000, key=b"d", value=b"\xff", headers=()),
    ]
    cluster.produce(topic, 0, records)
    rows = decode(cluster.query(source, subscribe=topic, includeHeaders="true"), "json", "id long")
    assert [row.id for row in rows.collect()] == [1, None, None, None]
    writer = dead_letters(rows).write.format(source).mode("append").option("topic", dead)
    writer.option("kafka.bootstrap.servers", cluster.bootstrap_servers).save()
    found = cluster.rows(reference_source(), subscribe=dead, includeHeaders="true")
    letters = {row[1]: (row[0], [tuple(header) for header in row[7]]) for row in found}

    def facts(offset: int, error: str) -> list[tuple[str, bytes]]:
        return [
            ("plog.source.topic", topic.encode()),
            ("plog.source.partition", b"0"),
            ("plog.source.offset", b"%d" % offset),
            ("plog.source.timestamp", b"%d" % (1000 * (offset + 1))),
            ("plog.error", error.encode()),
        ]

    not_json = facts(1, "the value is not JSON that fits the schema")
    assert letters == {
        b"{": (None, [("trace", b"7"), *not_json]),
        b"\xff": (b"d", facts(3, "the value is not UTF-8 text")),
    }


def test_rows_without_a_source_have_dead_letters(spark: SparkSession) -> None:
    [row] = dead_letters(decode(rows_of(spark, b"{", b"{}"), "json", "id long")).collect()
    assert row.value == b"{"
    assert [header.key for header in row.headers] == ["plog.error"]
    with pytest.raises(ConfigError, match="the rows have no column _corrupt_record"):
        dead_letters(rows_of(spark, b"{"))


def test_stream_is_decoded(cluster: Cluster, new_topic: Callable[[], str], tmp_path: Path) -> None:
    topic = new_topic()
    cluster.create(topic)
    values = [b'{"id": 1}', b"{", None]
    cluster.produce(topic, 0, [Record(timestamp=0, key=None, value=one) for one in values])
    stream = cluster.stream(reference_source(), subscribe=topic, startingOffsets="earliest")
    rows = decode(stream, "json", "id long")
    found: list[tuple[Any, ...]] = []

    def collect(batch: DataFrame, _: int) -> None:
        found.extend(tuple(row) for row in batch.select("id", "_corrupt_record").collect())

    writer = rows.writeStream.trigger(availableNow=True).foreachBatch(collect)
    writer.option("checkpointLocation", str(tmp_path)).start().awaitTermination()
    assert found == [(1, None), (None, "{"), (None, None)]
