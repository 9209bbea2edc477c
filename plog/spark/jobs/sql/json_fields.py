"""The fields of JSON values, found in a sample: names, and Spark's types for them. Pure.

| values | type |
|---|---|
| true, false | boolean |
| integers of up to 64 bits | bigint |
| other numbers, or both kinds | double |
| text, several of these types, only null | string |
| objects | struct, or string if they have more than 100 names |
| arrays | array of the common type |

A string contains the JSON text of other values.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from plog.spark.values.value_columns import ddl_of, quoted

_LONGS: Final = range(-(1 << 63), 1 << 63)
# Objects with more names are probably maps, whose keys are data.
_NAMES_MAX: Final = 100
_FIELDS_MAX: Final = 1000
# Spark limits the depth of types, too.
_DEPTH_MAX: Final = 50
"""Values below this level are strings of JSON."""

_NUMBERS: Final = (("bigint", "double"), ("double", "bigint"))

Kind: TypeAlias = "str | _Array | _Struct"
"""A type; the text is one of Spark's, or ``void`` for null."""


@dataclass(frozen=True, slots=True)
class _Array:
    element: Kind


@dataclass(frozen=True, slots=True)
class _Struct:
    fields: Mapping[str, Kind] = field(default_factory=dict)


def sampled_fields(values: Iterable[bytes | None]) -> tuple[tuple[str, str], ...] | None:
    """Return the names and types of the fields in a sample of values.

    Returns None if fewer than half of the values are JSON objects, or if there is no field. Null
    values do not count.

    >>> sampled_fields([b'{"id": 1, "tags": ["a"]}', b'{"id": 1.5}'])
    (('id', 'double'), ('tags', 'array<string>'))
    >>> sampled_fields([b"GET /"]) is None
    True
    """
    whole: Kind = _Struct()
    total = objects = 0
    for value in values:
        if value is None:
            continue
        total += 1
        found = _parsed(value)
        if isinstance(found, dict):
            objects += 1
            whole = _common(whole, _kind(found))
    # A few broken values must not hide the fields of all others.
    if objects * 2 < total or not isinstance(whole, _Struct) or not whole.fields:
        return None
    named = list(whole.fields.items())[:_FIELDS_MAX]
    return tuple((name, _type_of(kind)) for name, kind in named)


def _parsed(value: bytes) -> object:
    try:
        return json.loads(value)
    # Deep nesting is a RecursionError, and a number with thousands of digits a ValueError.
    except (ValueError, RecursionError):
        return None


def _kind(value: object, depth: int = 0) -> Kind:
    if depth == _DEPTH_MAX:
        return "string"
    if value is None:
        return "void"
    if isinstance(value, bool):  # Before int, of which it is a subclass.
        return "boolean"
    if isinstance(value, int):
        # As a bigint, a larger integer would be a value that does not fit, and so a corrupt record.
        return "bigint" if value in _LONGS else "double"
    if isinstance(value, float):
        return "double"
    if isinstance(value, dict):
        return _Struct({name: _kind(one, depth + 1) for name, one in value.items()})
    if isinstance(value, list):
        element: Kind = "void"
        for one in value:
            element = _common(element, _kind(one, depth + 1))
        return _Array(element)
    return "string"


def _common(one: Kind, other: Kind) -> Kind:
    """Return the type for the values of both types."""
    # Null fits every type.
    if one == other or other == "void":
        return one
    if one == "void":
        return other
    if isinstance(one, _Struct) and isinstance(other, _Struct):
        fields = dict(one.fields)
        for name, kind in other.fields.items():
            fields[name] = _common(fields.get(name, "void"), kind)
        return _Struct(fields)
    if isinstance(one, _Array) and isinstance(other, _Array):
        return _Array(_common(one.element, other.element))
    return "double" if (one, other) in _NUMBERS else "string"


def _type_of(kind: Kind) -> str:
    """Return the type in DDL."""
    if isinstance(kind, _Array):
        return f"array<{_type_of(kind.element)}>"
    if isinstance(kind, _Struct):
        if not 0 < len(kind.fields) <= _NAMES_MAX:
            return "string"
        named = _distinct(kind.fields.items())
        inner = ", ".join(f"{quoted(name)}: {_type_of(of)}" for name, of in named)
        return f"struct<{inner}>"
    return "string" if kind == "void" else kind


def _distinct(fields: Iterable[tuple[str, Kind]]) -> list[tuple[str, Kind]]:
    """Return the fields with different names; Spark's names ignore the case."""
    found: dict[str, tuple[str, Kind]] = {}
    for name, kind in fields:
        found.setdefault(name.lower(), (name, kind))
    return list(found.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldColumn:
    """A column of the table of a topic, and the field of the value that it shows."""

    name: str
    field: str


def field_columns(
    fields: Iterable[tuple[str, str]], reserved: Iterable[str]
) -> tuple[FieldColumn, ...]:
    """Return the columns for fields; a name that is `reserved` gets the prefix ``value``.

    Fields whose names differ only in case are one column: the first one.

    >>> field_columns([("id", "bigint"), ("_key", "string"), ("ID", "string")], ["_key"])
    (FieldColumn(name='id', field='id'), FieldColumn(name='value_key', field='_key'))
    """
    taken, columns = {name.lower() for name in reserved}, []
    seen: set[str] = set()
    for field_name, _ in fields:
        if field_name.lower() in seen:
            continue
        seen.add(field_name.lower())
        name = field_name
        # A field may already have the name with the prefix.
        while name.lower() in taken:
            name = f"value{name}" if name.startswith("_") else f"value_{name}"
        taken.add(name.lower())
        columns.append(FieldColumn(name=name, field=field_name))
    return tuple(columns)


def schema_of(fields: Iterable[tuple[str, str]]) -> str:
    """Return the DDL of fields."""
    return ddl_of(list(fields))
