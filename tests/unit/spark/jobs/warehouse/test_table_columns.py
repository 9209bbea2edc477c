"""plog/spark/jobs/warehouse/table_columns.py: columns are added and widened."""

from __future__ import annotations

from pathlib import Path

import pytest

from plog.settings import ConfigError
from plog.spark.jobs.table_files import TableFiles
from plog.spark.jobs.warehouse.table_columns import (
    COLUMNS_MAX,
    Column,
    TableColumns,
    common_type,
    inferred_type,
    read_columns,
    write_columns,
)


def kinds(**fields: str) -> dict[str, frozenset[str]]:
    return {name: frozenset(text.split()) for name, text in fields.items()}


def types(columns: TableColumns) -> dict[str, str]:
    return {column.name: column.type for column in columns.columns}


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("tinyint", "smallint", "smallint"),
        ("int", "double", "double"),
        ("int", "float", "double"),
        ("bigint", "double", "double"),
        ("float", "double", "double"),
        ("array<int>", "array<int>", "array<int>"),
        ("array<int>", "array<bigint>", None),
        ("boolean", "int", None),
        ("string", "binary", None),
        ("decimal(10,2)", "decimal(12,2)", None),
    ],
)
def test_only_numbers_have_a_common_type(one: str, other: str, expected: str | None) -> None:
    assert common_type(one, other) == common_type(other, one) == expected


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ("BIGINT VOID", "bigint"),
        ("DECIMAL", "double"),
        ("FLOAT BIGINT", "double"),
        ("BOOLEAN", "boolean"),
        ("BOOLEAN BIGINT", "string"),
        ("OBJECT ARRAY", "string"),
        ("STRING", "string"),
        ("VOID", None),
    ],
)
def test_kinds_of_values_determine_the_type(found: str, expected: str | None) -> None:
    assert inferred_type(frozenset(found.split())) == expected


def test_schema_adds_and_widens_columns_and_removes_none() -> None:
    first = TableColumns().with_fields([("id", "int"), ("name", "string")])
    second = first.with_fields([("more", "float"), ("id", "bigint")])
    assert types(second) == {"id": "bigint", "name": "string", "more": "float"}
    assert second.widened_since(first)
    assert not first.with_fields([("other", "int")]).widened_since(first)
    # A narrower type is accepted.
    assert second.with_fields([("id", "int")]) == second
    with pytest.raises(ConfigError, match="the column name from string to int: only numbers"):
        second.with_fields([("name", "int")])


def test_fields_in_the_data_add_and_widen_columns() -> None:
    first = TableColumns().with_kinds(kinds(a="BIGINT", b="VOID", c="STRING", d="BOOLEAN"))
    assert types(first) == {"a": "bigint", "c": "string", "d": "boolean"}
    # What does not fit, such as a string for a number, changes nothing.
    second = first.with_kinds(kinds(a="DECIMAL STRING", c="BIGINT", d="STRING", b="BIGINT"))
    assert types(second) == {"a": "double", "c": "string", "d": "boolean", "b": "bigint"}


def test_names_of_record_columns_get_a_prefix() -> None:
    made = TableColumns().with_kinds(kinds(Offset="BIGINT", value_Offset="BIGINT", date="STRING"))
    assert [(one.name, one.field) for one in made.columns] == [
        ("value_Offset", "Offset"),
        ("value_date", "date"),
        ("value_value_Offset", "value_Offset"),
    ]


def test_name_that_differs_only_in_case_is_refused() -> None:
    made = TableColumns().with_kinds(kinds(id="BIGINT"))
    assert made.with_kinds(kinds(ID="BIGINT")) == made
    with pytest.raises(ConfigError, match="cannot add the column ID"):
        made.with_fields([("ID", "bigint")])


def test_columns_are_stored(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    assert read_columns(TableFiles(), path) == TableColumns()
    columns = TableColumns(columns=(Column(name="a", type="int", field="A"),), rewriting=True)
    write_columns(TableFiles(), path, columns)
    assert read_columns(TableFiles(), path) == columns
    path.write_text("[]")
    with pytest.raises(ConfigError, match="cannot read"):
        read_columns(TableFiles(), path)


def test_values_with_too_many_fields_need_a_schema() -> None:
    most = {f"field_{number}": frozenset({"BIGINT"}) for number in range(COLUMNS_MAX)}
    full = TableColumns().with_kinds(most)
    assert len(full.columns) == COLUMNS_MAX
    assert full.with_kinds(most) == full
    for more in ({"new": frozenset({"BIGINT"})}, {**most, "null": frozenset({"VOID"})}):
        with pytest.raises(ConfigError, match=r"more than 1,000 different fields; set a schema"):
            full.with_kinds(more)
