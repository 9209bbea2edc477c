"""plog/spark/values/avro_schema.py: the columns of an Avro schema."""

from __future__ import annotations

import json
from typing import Any

import pytest

from plog.settings import ConfigError
from plog.spark.values.avro_schema import AvroSchema, parse_avro_schema


def schema_of(kind: Any) -> str:
    return json.dumps({"type": "record", "name": "r", "fields": [{"name": "f", "type": kind}]})


def translated(kind: Any) -> AvroSchema:
    return parse_avro_schema(schema_of(kind))


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


FIXED = {"type": "fixed", "name": "sum", "size": 4}
POINT = {
    "type": "record",
    "name": "point",
    "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": ["null", "int"]}],
}


@pytest.mark.parametrize(
    ("kind", "ddl"),
    [
        ("boolean", "boolean"),
        ("int", "int"),
        ("long", "bigint"),
        ("float", "float"),
        ("double", "double"),
        ("bytes", "binary"),
        ("string", "string"),
        ({"type": "string"}, "string"),
        ({"type": {"type": "string"}}, "string"),
        (["null", "string"], "string"),
        (["string", "null"], "string"),
        (["null", "int", "long"], "bigint"),
        (["float", "double"], "double"),
        ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, "string"),
        (FIXED, "binary"),
        ({"type": "array", "items": ["null", "long"]}, "array<bigint>"),
        ({"type": "map", "values": {"type": "array", "items": "int"}}, "map<string,array<int>>"),
        (POINT, "struct<`x`:int,`y`:int>"),
        (logical("int", "date"), "date"),
        (logical("long", "timestamp-millis"), "timestamp"),
        (logical("long", "timestamp-micros"), "timestamp"),
        (logical("long", "local-timestamp-micros"), "timestamp_ntz"),
        (logical("bytes", "decimal", precision=10, scale=2), "decimal(10,2)"),
        (logical("bytes", "decimal", precision=10), "decimal(10,0)"),
        ({**FIXED, "logicalType": "decimal", "precision": 9, "scale": 3}, "decimal(9,3)"),
    ],
    ids=str,
)
def test_type_has_its_spark_type(kind: Any, ddl: str) -> None:
    made = translated(kind)
    assert (made.columns, made.names) == (f"`f` {ddl}", ("f",))


@pytest.mark.parametrize(
    ("kind", "ddl"),
    [
        (logical("int", "time-millis"), "int"),
        (logical("long", "timestamp-nanos"), "bigint"),
        (logical("string", "uuid"), "string"),
        ({**FIXED, "logicalType": "duration"}, "binary"),
    ],
    ids=str,
)
def test_logical_type_that_spark_lacks_is_removed(kind: Any, ddl: str) -> None:
    made = translated(["null", kind])
    assert made.columns == f"`f` {ddl}"
    assert "logicalType" not in json.dumps(made.reader)


def test_named_type_is_found_by_both_of_its_names() -> None:
    shape = {"type": "enum", "name": "shape", "namespace": "a.b", "symbols": ["X"]}
    fields = [
        {"name": "one", "type": shape},
        {"name": "two", "type": "a.b.shape"},
        {"name": "three", "type": {"type": "array", "items": POINT}},
        {"name": "four", "type": "point"},
    ]
    schema = {"type": "record", "name": "order", "namespace": "a.c", "fields": fields}
    assert parse_avro_schema(json.dumps(schema)).columns == (
        "`one` string, `two` string, `three` array<struct<`x`:int,`y`:int>>,"
        " `four` struct<`x`:int,`y`:int>"
    )


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (["int", "string"], "f is the union of int, string"),
        (
            {"type": "array", "items": ["null", "int", POINT]},
            r"f\[\] is the union of null, int, rec",
        ),
        ("null", "f is null"),
        ("nothing", "f is nothing"),
        ({"type": "map", "values": "r"}, r"f{} is the recursive record r"),
        (logical("bytes", "decimal", precision=39), "f is a decimal with precision 39"),
        ({"type": "record", "name": "empty", "fields": []}, "f is a record without fields"),
        ({**POINT, "fields": [{"name": "z", "type": "null"}]}, "f.z is null"),
    ],
    ids=str,
)
def test_unsupported_type_is_named_with_its_field(kind: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        translated(kind)


def test_all_unsupported_types_are_named() -> None:
    fields = [{"name": "a", "type": "null"}, {"name": "b", "type": ["int", "bytes"]}]
    with pytest.raises(ConfigError) as raised:
        parse_avro_schema(json.dumps({"type": "record", "name": "r", "fields": fields}))
    assert len(raised.value.problems) == 2


@pytest.mark.parametrize("text", ["", "id bigint", "[]", '"string"', '{"type": "array"}'])
def test_schema_that_is_not_a_record_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="the Avro schema is not"):
        parse_avro_schema(text)
