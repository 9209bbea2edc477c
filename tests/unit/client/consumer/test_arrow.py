"""Arrow record batches contain the same records that `take` returns."""

from __future__ import annotations

import builtins
import datetime
from typing import Any

import pytest

from plog.client.consumer.arrow import SparkColumns, record_batch, record_schema
from plog.client.consumer.completed_fetch import ColumnRun
from plog.client.errors import CorruptRecords, MissingExtra
from plog.records.batch import TimestampType
from plog.records.builder import build_batch
from plog.records.codec import Record
from plog.records.record_columns import RecordColumns
from plog.types import TopicPartition
from tests.helpers.client.consumer_site import ConsumerSite
from tests.helpers.sim.sim_time import START_MS
from tests.unit.client.consumer.test_completed_fetch import fetched

pa = pytest.importorskip("pyarrow")

U3 = TopicPartition("u", 3)


def rows_of(*batches: bytes) -> list[dict[str, Any]]:
    columns = RecordColumns()
    runs: list[ColumnRun] = []
    for one in batches:
        runs += fetched(one).take_columns(columns, 1000)
    made = record_batch(columns, runs)
    made.validate(full=True)
    rows: list[dict[str, Any]] = made.to_pylist()
    return rows


def test_record_becomes_a_row() -> None:
    record = Record(timestamp=1_500, key=b"k", value=b"v", headers=(("h", b"x"), ("g", None)))
    [row] = rows_of(build_batch([record], base_offset=7, partition_leader_epoch=2))
    assert row == {
        "topic": "t",
        "partition": 0,
        "offset": 7,
        "timestamp": datetime.datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=datetime.UTC),
        "timestamp_type": 0,
        "key": b"k",
        "value": b"v",
        "headers": [{"key": "h", "value": b"x"}, {"key": "g", "value": None}],
        "leader_epoch": 2,
    }


def test_null_and_empty_values_differ() -> None:
    values = [None, b"", b"a", None, b"bc"] * 7
    rows = rows_of(
        build_batch(
            [Record(timestamp=1, key=x, value=y) for x, y in zip(values, values[::-1], strict=True)]
        )
    )
    assert [row["key"] for row in rows] == values
    assert [row["value"] for row in rows] == values[::-1]


def test_missing_timestamp_is_null() -> None:
    rows = rows_of(build_batch([Record(timestamp=-1), Record(timestamp=0)]))
    assert [row["timestamp"] is None for row in rows] == [True, False]


def test_rows_without_headers_have_empty_lists() -> None:
    records = [Record(timestamp=1), Record(timestamp=1, headers=(("h\udcff", b""),))]
    rows = rows_of(build_batch(records))
    assert [row["headers"] for row in rows] == [[], [{"key": "h?", "value": b""}]]


def test_record_batch_may_contain_several_topics() -> None:
    columns = RecordColumns()
    runs = fetched(build_batch([Record(timestamp=1)] * 2)).take_columns(columns, 9)
    more = fetched(build_batch([Record(timestamp=1)] * 3)).take_columns(columns, 9)
    runs += [one._replace(partition=U3, leader_epoch=4) for one in more]
    made = record_batch(columns, runs)
    made.validate(full=True)
    assert made.schema == record_schema()
    assert made.column("topic").to_pylist() == ["t", "t", "u", "u", "u"]
    assert made.column("partition").to_pylist() == [0, 0, 3, 3, 3]
    assert made.column("leader_epoch").to_pylist() == [-1, -1, 4, 4, 4]


def spark_batch(*batches: bytes, with_headers: bool = False) -> Any:
    """Return a batch of Spark's columns; the second and later batches are of the partition U3."""
    columns = RecordColumns()
    runs: list[ColumnRun] = []
    for number, one in enumerate(batches):
        added = fetched(one).take_columns(columns, 1000)
        runs += [run._replace(partition=U3) for run in added] if number else added
    made = SparkColumns(with_headers=with_headers).build(columns, runs)
    made.validate(full=True)
    return made


def test_spark_columns_have_the_schema_of_the_connector() -> None:
    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    fields = [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("timestampType", pa.int32()),
    ]
    batch = build_batch([Record(timestamp=1)])
    assert spark_batch(batch).schema == pa.schema(fields)
    fields.append(pa.field("headers", pa.list_(pa.field("element", header))))
    assert spark_batch(batch, with_headers=True).schema == pa.schema(fields)


def test_spark_row_equals_the_record() -> None:
    record = Record(timestamp=1_500, key=b"k", value=None, headers=(("h", b"x"), ("g", None)))
    first = build_batch([record], base_offset=7)
    second = build_batch([Record(timestamp=1)])
    rows = spark_batch(first, second, with_headers=True).to_pylist()
    assert rows[0] == {
        "key": b"k",
        "value": None,
        "topic": "t",
        "partition": 0,
        "offset": 7,
        "timestamp": datetime.datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=datetime.UTC),
        "timestampType": 0,
        "headers": [{"key": "h", "value": b"x"}, {"key": "g", "value": None}],
    }
    assert (rows[1]["topic"], rows[1]["partition"], rows[1]["headers"]) == ("u", 3, None)


def test_spark_batches_of_one_builder_contain_their_own_topics_and_partitions() -> None:
    builder = SparkColumns(with_headers=False)
    written = ((U3, 2, 0), (U3, 5, 0), (U3, 3, 1), (TopicPartition("t", 4), 3, 1), (U3, 4, 0))
    for partition, count, kind in written:
        columns = RecordColumns()
        one = build_batch([Record(timestamp=1)] * count, timestamp_type=TimestampType(kind))
        runs = [x._replace(partition=partition) for x in fetched(one).take_columns(columns, 9)]
        made = builder.build(columns, runs)
        made.validate(full=True)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, made.schema) as stream:
            stream.write_batch(made)
        [read] = pa.ipc.open_stream(sink.getvalue())
        assert read.equals(made)
        for name, value in (("topic", partition.topic), ("partition", partition.partition)):
            assert read[name].to_pylist() == [value] * count
        assert read["timestampType"].to_pylist() == [kind] * count


def test_spark_headers_are_null_when_no_record_has_any() -> None:
    made = spark_batch(build_batch([Record(timestamp=1)] * 2), with_headers=True)
    assert made["headers"].to_pylist() == [None, None]


def test_spark_timestamp_of_record_without_one_is_before_1970() -> None:
    made = spark_batch(build_batch([Record(timestamp=-1), Record(timestamp=2)]))
    assert made["timestamp"].cast(pa.int64()).to_pylist() == [-1_000, 2_000]


def test_spark_timestamp_beyond_microseconds_is_an_error() -> None:
    batch = build_batch([Record(timestamp=1), Record(timestamp=2**62)], base_offset=5)
    with pytest.raises(OverflowError, match=f"timestamp {2**62} ms of the record at offset 6"):
        spark_batch(batch)


def test_take_arrow_returns_all_buffered_records_as_one_batch() -> None:
    site = ConsumerSite()
    partitions = site.create("t", 2)
    for number in (0, 1):
        for _ in range(3):
            site.produce("t", b"a", b"b", partition=number)
    assert site.core.take_arrow(10) is None
    site.core.assign(partitions)
    site.sim.advance(1_000)
    made = site.core.take_arrow(5)
    assert made is not None
    assert made.num_rows == 5
    rest = site.core.take(100)
    assert len(rest) == 7
    rows = [*zip(made["partition"].to_pylist(), made["offset"].to_pylist(), strict=True)]
    rows += [(x.partition, x.offset) for x in rest]
    for number in (0, 1):
        assert [offset for partition, offset in rows if partition == number] == list(range(6))
    assert made["timestamp"].to_pylist()[0].timestamp() * 1000 == START_MS
    assert site.core.metrics()["records-consumed-total"] == 12


def test_corruption_is_raised_after_earlier_rows() -> None:
    site = ConsumerSite()
    site.create("t")
    site.produce("t", b"a")
    site.produce("t", b"b")
    site.damage("t", 1)
    site.core.assign([TopicPartition("t", 0)])
    site.sim.advance(1_000)
    made = site.core.take_arrow(5)
    assert made is not None
    assert made["value"].to_pylist() == [b"a"]
    with pytest.raises(CorruptRecords):
        site.core.take_arrow(5)
    assert site.core.positions.position(TopicPartition("t", 0)) == 1


def test_error_names_extra_when_pyarrow_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "pyarrow":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match=r"pip install 'plog\[arrow\]'"):
        record_batch(RecordColumns(), [])
