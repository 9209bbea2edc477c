"""Fields of JSON values: types of mixed values, nested objects, names and text."""

from __future__ import annotations

import json
from typing import Any

import pytest

from plog.spark.jobs.sql.json_fields import field_columns, sampled_fields


def fields_of(*values: Any) -> dict[str, str] | None:
    found = sampled_fields([json.dumps(value).encode() for value in values])
    return None if found is None else dict(found)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([True, None], "boolean"),
        ([1, None, -(1 << 63)], "bigint"),
        ([1, 1 << 63], "double"),
        ([1, 0.5], "double"),
        (["a"], "string"),
        ([None], "string"),
        ([1, "a"], "string"),
        ([True, 1], "string"),
        ([{"a": 1}, [1]], "string"),
        ([[], [1], [None, 0.5]], "array<double>"),
        ([[]], "array<string>"),
        ([[{"a": 1}, {"b": "x"}]], "array<struct<`a`: bigint, `b`: string>>"),
        ([{"a": 1}, {"a": {"b": 1}}], "struct<`a`: string>"),
        ([{}], "string"),
        ([{"a`b": 1}], "struct<`a``b`: bigint>"),
        ([{"ID": 1, "id": "x"}], "struct<`ID`: bigint>"),
        ([{str(number): 1 for number in range(101)}], "string"),
    ],
)
def test_type_fits_all_values(values: list[Any], expected: str) -> None:
    assert fields_of(*({"f": value} for value in values)) == {"f": expected}


def test_fields_are_in_the_order_in_which_they_are_found() -> None:
    found = fields_of({"b": 1, "a": 1}, {"c": 1, "a": 2})
    assert found is not None
    assert list(found) == ["b", "a", "c"]


def test_values_are_text_unless_half_of_them_are_objects() -> None:
    assert sampled_fields([b"x", b'{"a": 1}']) == (("a", "bigint"),)
    assert sampled_fields([b"x", b"[1]", b'{"a": 1}']) is None
    assert sampled_fields([None, None, b'{"a": 1}']) == (("a", "bigint"),)
    assert sampled_fields([]) is None
    assert sampled_fields([b"{}", b"\xff", b"{"]) is None
    assert sampled_fields([b'{"a":' * 10_000]) is None
    assert sampled_fields([b'{"a": ' + b"9" * 5000 + b"}"]) is None


def test_columns_have_distinct_names() -> None:
    fields = [("a", "string"), ("A", "string"), ("_KEY", "string"), ("value_KEY", "string")]
    columns = field_columns(fields, ["_key"])
    assert [(one.name, one.field) for one in columns] == [
        ("a", "a"),
        ("value_KEY", "_KEY"),
        ("value_value_KEY", "value_KEY"),
    ]


@pytest.mark.parametrize(("opening", "closing"), [('{"a":', "}"), ("[", "]")])
def test_deeply_nested_values_are_strings_below_a_level(opening: str, closing: str) -> None:
    depth = 400
    value = f'{{"id": 1, "deep": {opening * depth}1{closing * depth}}}'.encode()
    fields = sampled_fields([value, value])
    assert fields is not None
    (name, of), deep = fields
    assert (name, of) == ("id", "bigint")
    assert deep[1].count("struct<") + deep[1].count("array<") < 50
