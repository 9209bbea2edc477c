"""`TableColumns`: the columns that a topic's table has besides those of the record. Pure.

Columns are only added and widened, and never removed. All files of a table have the same type for a
column: if one is widened, the files are rewritten, because Spark reads no file whose ``bigint`` has
become a ``double``.

| old type | may become |
|---|---|
| tinyint, smallint, int | a longer integer, or double |
| bigint | double, which rounds integers of more than 53 bits |
| float | double |
| any other | nothing else |

Without a schema, the first value of a field determines the type of its column: bigint, double,
boolean or string. Objects and arrays are strings of JSON, and so are fields with several types.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from plog.settings import ConfigError
from plog.spark.jobs.table_files import TableFiles, damaged

RECORD_COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "key")
# Spark takes date and hour from the names of folders.
_RESERVED: Final = frozenset((*RECORD_COLUMNS, "value", "date", "hour"))
_PREFIX: Final = "value_"
COLUMNS_MAX: Final = 1000
"""The maximum number of columns of a table without a schema."""
_INTEGERS: Final = ("tinyint", "smallint", "int", "bigint")
_FRACTIONS: Final = ("float", "double")
# try_parse_json stores 1.5, and integers of more than 64 bits, as DECIMAL.
_FRACTION_KINDS: Final = frozenset({"DECIMAL", "DOUBLE", "FLOAT"})
_NUMBER_KINDS: Final = _FRACTION_KINDS | {"BIGINT"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of the table, with its type in Spark and the field of the value that it holds."""

    name: str
    type: str
    field: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumns:
    """The columns for the fields of values, in the order in which they were added."""

    columns: tuple[Column, ...] = ()
    rewriting: bool = False
    """Whether files may still have the types from before a column was widened."""

    def with_fields(self, fields: Iterable[tuple[str, str]]) -> TableColumns:
        """Return the columns for the (name, type) of a schema. Raises ConfigError.

        A column that the table has with a wider type keeps it.
        """
        made = self
        for name, of in fields:
            column = made.of_field(name)
            if column is None:
                made = made._added(name, of)
                continue
            wider = common_type(column.type, of)
            if wider is None:
                raise ConfigError(
                    [
                        f"cannot change the column {column.name} from {column.type} to {of}: only"
                        " numbers can be widened; rename the field, or write to another folder"
                    ]
                )
            made = made._widened(column, wider)
        return made

    def with_kinds(self, kinds: Mapping[str, frozenset[str]]) -> TableColumns:
        """Return the columns after a batch without a schema; `kinds` are by field (JSON only).

        A field whose name differs from another one only in case gets no column. Raises ConfigError
        if there are too many fields, because they are probably not names but data.
        """
        made = self
        # The fields of a batch have no order of their own, so their names decide.
        for name, found in sorted(kinds.items()):
            column = made.of_field(name)
            if column is not None:
                # Values that do not fit other columns are dead letters.
                if column.type == "bigint" and found & _FRACTION_KINDS:
                    made = made._widened(column, "double")
                continue
            of = inferred_type(found)
            if of is not None and not made.clashes(name):
                made = made._added(name, of)
        # A table that a schema has given more columns keeps them.
        if len(kinds) > COLUMNS_MAX or len(made.columns) > max(COLUMNS_MAX, len(self.columns)):
            raise ConfigError(
                [
                    f"cannot add a column for each field, such as {max(kinds)}: the values have"
                    f" more than {COLUMNS_MAX:,} different fields; set a schema"
                ]
            )
        return made

    def of_field(self, field: str) -> Column | None:
        """Return the column of a field, or None."""
        return next((column for column in self.columns if column.field == field), None)

    def clashes(self, field: str) -> bool:
        """Return whether another field's name differs only in case, which Spark ignores."""
        lower = field.lower()
        return any(one.field != field and one.field.lower() == lower for one in self.columns)

    def widened_since(self, earlier: TableColumns) -> bool:
        """Return whether a column has another type than in `earlier`."""
        types = {column.name: column.type for column in self.columns}
        return any(types[column.name] != column.type for column in earlier.columns)

    def _added(self, field: str, of: str) -> TableColumns:
        if self.clashes(field):
            raise ConfigError(
                [
                    f"cannot add the column {field}: another column has the same name in a"
                    " different case; rename the field"
                ]
            )
        taken = {column.name.lower() for column in self.columns} | _RESERVED
        name = field
        # Another field may already have the name with the prefix.
        while name.lower() in taken:
            name = f"{_PREFIX}{name}"
        column = Column(name=name, type=of, field=field)
        return replace(self, columns=(*self.columns, column))

    def _widened(self, column: Column, of: str) -> TableColumns:
        wider = replace(column, type=of)
        columns = tuple(wider if one == column else one for one in self.columns)
        return replace(self, columns=columns)


def common_type(one: str, other: str) -> str | None:
    """Return the narrowest type for the values of both, or None.

    >>> common_type("int", "bigint"), common_type("bigint", "float"), common_type("int", "string")
    ('bigint', 'double', None)
    """
    if one == other:
        return one
    both = {one, other}
    if both <= set(_INTEGERS):
        return max(both, key=_INTEGERS.index)
    # A float would round integers of more than 24 bits.
    if both <= {*_INTEGERS, *_FRACTIONS}:
        return "double"
    return None


def inferred_type(kinds: frozenset[str]) -> str | None:
    """Return the type of a column for values of these kinds, which are Spark's names for variants.

    >>> inferred_type(frozenset({"BIGINT", "DECIMAL", "VOID"})), inferred_type(frozenset({"VOID"}))
    ('double', None)
    """
    found = kinds - {"VOID"}
    # Null says nothing about the type, so a later batch decides.
    if not found:
        return None
    if found == {"BIGINT"}:
        return "bigint"
    if found <= _NUMBER_KINDS:
        return "double"
    return "boolean" if found == {"BOOLEAN"} else "string"


def read_columns(files: TableFiles, path: Path) -> TableColumns:
    """Return the columns in a file; none if it does not exist. Raises ConfigError if damaged."""
    text = files.read(path)
    if text is None:
        return TableColumns()
    try:
        found = json.loads(text)
        columns = tuple(
            Column(name=str(one["name"]), type=str(one["type"]), field=str(one["field"]))
            for one in found["columns"]
        )
        return TableColumns(columns=columns, rewriting=bool(found["rewriting"]))
    except (ValueError, KeyError, TypeError) as error:
        damaged(path, error)


def write_columns(files: TableFiles, path: Path, columns: TableColumns) -> None:
    """Replace the columns in a file."""
    listed: Sequence[dict[str, str]] = [
        {"name": one.name, "type": one.type, "field": one.field} for one in columns.columns
    ]
    text = json.dumps({"columns": listed, "rewriting": columns.rewriting})
    files.write(path, text)
