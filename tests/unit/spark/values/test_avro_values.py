"""Avro values become Arrow structs, with an error for each value that cannot be decoded."""

from __future__ import annotations

import io
import json
import re
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from plog.client.errors import MissingExtra
from plog.settings import ConfigError
from plog.spark.values.avro_schema import parse_avro_schema
from plog.spark.values.avro_values import check_reader, decode_avro

pa = pytest.importorskip("pyarrow")
fastavro = pytest.importorskip("fastavro")

SCHEMA = {
    "type": "record",
    "name": "order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
TYPE = pa.struct([("id", pa.int64()), ("note", pa.string())])
GOOD = b"\x02\x02\x04hi"


def encoded(schema: dict[str, Any], record: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), record)
    return stream.getvalue()


def decoded(*values: bytes | None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = decode_avro(
        pa.array(values, pa.binary()), SCHEMA, TYPE
    ).to_pylist()
    return found


def test_value_becomes_a_record() -> None:
    assert encoded(SCHEMA, {"id": 1, "note": "hi"}) == GOOD
    assert decoded(GOOD) == [{"record": {"id": 1, "note": "hi"}, "error": None}]


def test_null_has_neither_record_nor_error() -> None:
    assert decoded(None) == [{"record": None, "error": None}]


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (b"", "it ends within the record"),
        (GOOD[:-1], "it ends within the record"),
        (b"\xff" * 20, "it ends within the record"),
        (GOOD + b"12", "2 of 7 bytes are left after the record"),
        (b"\x02\x02\x04\xff\xff", "codec can't decode byte 0xff"),
        (b"\x02\x08", "it has an index that its union or enum does not have"),
    ],
)
def test_bad_value_has_an_error_and_does_not_affect_others(value: bytes, error: str) -> None:
    first, second = decoded(value, GOOD)
    assert first["record"] is None
    assert re.search(error, first["error"])
    assert second["record"]["id"] == 1


def test_value_that_arrow_refuses_has_an_error() -> None:
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
    schema = {"type": "record", "name": "r", "fields": [{"name": "d", "type": kind}]}
    # The bytes may contain more digits than the schema allows.
    long = encoded(schema | {"fields": [{"name": "d", "type": "bytes"}]}, {"d": b"\x7f" * 4})
    short = encoded(schema, {"d": Decimal("1.50")})
    found = decode_avro(
        pa.array([short, long, None, short], pa.binary()),
        schema,
        pa.struct([("d", pa.decimal128(4, 2))]),
    ).to_pylist()
    assert [row["record"] for row in found] == [
        {"d": Decimal("1.50")},
        None,
        None,
        found[0]["record"],
    ]
    assert [row["error"] is not None for row in found] == [False, True, False, False]


def test_every_type_is_converted() -> None:
    def field(name: str, kind: Any, logical: str | None = None, **more: Any) -> dict[str, Any]:
        of = kind if logical is None else {"type": kind, "logicalType": logical, **more}
        return {"name": name, "type": of}

    fields = [
        field("flag", "boolean"),
        field("ratio", "double"),
        field("raw", "bytes"),
        field("kind", {"type": "enum", "name": "e", "symbols": ["A", "B"]}),
        field("sum", {"type": "fixed", "name": "f", "size": 2}),
        field("tags", {"type": "array", "items": ["null", "string"]}),
        field("counts", {"type": "map", "values": "int"}),
        field("day", "int", "date"),
        field("at", "long", "timestamp-millis"),
        field("local", "long", "local-timestamp-micros"),
        field("price", "bytes", "decimal", precision=10, scale=2),
        field("clock", "int", "time-millis"),
        field("uuid", "string", "uuid"),
    ]
    at = datetime(2026, 1, 2, 3, 4, 5, 6000, UTC)
    record = {
        "flag": True,
        "ratio": 0.5,
        "raw": b"\xff",
        "kind": "B",
        "sum": b"ab",
        "tags": ["x", None],
        "counts": {"a": 1},
        "day": date(2026, 1, 2),
        "at": at,
        "local": at.replace(tzinfo=None),
        "price": Decimal("12.30"),
        "clock": 7,
        "uuid": "2d4b2f50-0000-4000-8000-000000000001",
    }
    schema = parse_avro_schema(json.dumps({"type": "record", "name": "r", "fields": fields}))
    types = [
        *(pa.bool_(), pa.float64(), pa.binary(), pa.string(), pa.binary()),
        *(pa.list_(pa.string()), pa.map_(pa.string(), pa.int32()), pa.date32()),
        *(pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.decimal128(10, 2)),
        *(pa.int32(), pa.string()),
    ]
    struct = pa.struct(list(zip(schema.names, types, strict=True)))
    value = encoded(schema.reader, record)
    [found] = decode_avro(pa.array([value], pa.binary()), schema.reader, struct).to_pylist()
    assert found == {"record": record | {"counts": [("a", 1)]}, "error": None}


def test_invalid_schema_is_refused_before_the_query_starts() -> None:
    check_reader(SCHEMA)
    with pytest.raises(ConfigError, match="the Avro schema is invalid"):
        check_reader(SCHEMA | {"fields": [{"name": "e", "type": {"type": "enum", "name": "e"}}]})


def test_missing_fastavro_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(MissingExtra, match=r"pip install 'plog\[avro\]'"):
        check_reader(SCHEMA)
