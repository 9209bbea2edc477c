"""Translation of an Avro schema to Spark's columns. Pure.

Values of logical types that Spark lacks have the underlying type.

Source: Avro 1.12 specification, "Schema Declaration" and "Logical Types".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from plog.settings import ConfigError

_PRIMITIVES: Final = {
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "string": "string",
}
_LOGICAL: Final = {
    ("int", "date"): "date",
    ("long", "timestamp-millis"): "timestamp",
    ("long", "timestamp-micros"): "timestamp",
    ("long", "local-timestamp-millis"): "timestamp_ntz",
    ("long", "local-timestamp-micros"): "timestamp_ntz",
}
_DECIMAL_DIGITS_MAX: Final = 38
"""The precision of Spark's decimals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroSchema:
    """A record schema: Spark's `columns` as DDL text, their names, and the schema to read with."""

    columns: str
    names: tuple[str, ...]
    reader: dict[str, Any]


def parse_avro_schema(text: str) -> AvroSchema:
    """Translate the schema of a record. Raises ConfigError, which names all unsupported types.

    >>> fields = '[{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]}]'
    >>> parse_avro_schema(f'{{"type": "record", "name": "o", "fields": {fields}}}').columns
    '`id` bigint, `note` string'
    """
    try:
        schema = json.loads(text)
    except (TypeError, ValueError) as error:
        raise ConfigError([f"the Avro schema is not JSON: {error}"]) from None
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise ConfigError(
            ["the Avro schema is not a record: decode makes a column of each of its fields"]
        )
    translation = _Translation()
    fields = translation.fields(schema, "")
    if translation.problems:
        raise ConfigError(translation.problems)
    return AvroSchema(
        columns=", ".join(f"{_quoted(name)} {ddl}" for name, ddl, _ in fields),
        names=tuple(name for name, _, _ in fields),
        reader={**schema, "fields": [schema_of for _, _, schema_of in fields]},
    )


@dataclass(slots=True)
class _Translation:
    """The named types found so far, and the problems."""

    problems: list[str] = field(default_factory=list)
    _named: dict[str, str] = field(default_factory=dict)
    """Spark's type of each complete named type."""
    _open: set[str] = field(default_factory=set)
    """The records that contain the current type."""

    def fields(self, record: Mapping[str, Any], path: str) -> list[tuple[str, str, dict[str, Any]]]:
        """Return name, Spark type and reading schema of each field of a record."""
        name = _full_name(record, "")
        namespace = name.rpartition(".")[0]
        self._open.add(name)
        found = []
        for each in record.get("fields") or ():
            where = f"{path}.{each['name']}" if path else str(each["name"])
            ddl, reader = self.type(each.get("type"), where, namespace)
            found.append((str(each["name"]), ddl, {**each, "type": reader}))
        self._open.discard(name)
        if not found:
            # Spark has no use for it, and an array of empty records has no limit on its length.
            self._unsupported(path or name, "a record without fields")
        return found

    def type(self, schema: Any, path: str, namespace: str) -> tuple[str, Any]:
        """Return the Spark type of `schema`, and the schema to read with."""
        if isinstance(schema, list):
            return self._union(schema, path, namespace)
        if isinstance(schema, str):
            return self._by_name(schema, path, namespace), schema
        if not isinstance(schema, dict):
            return self._unsupported(path, f"{schema!r}"), schema
        kind = schema.get("type")
        if isinstance(kind, dict | list):  # {"type": {"type": "string"}} is valid.
            return self.type(kind, path, namespace)
        if kind == "array":
            ddl, reader = self.type(schema.get("items"), f"{path}[]", namespace)
            return f"array<{ddl}>", {**schema, "items": reader}
        if kind == "map":
            ddl, reader = self.type(schema.get("values"), f"{path}{{}}", namespace)
            return f"map<string,{ddl}>", {**schema, "values": reader}
        if kind in ("record", "enum", "fixed"):
            return self._named_type(schema, path, namespace)
        return self._logical(schema, path, namespace, str(kind))

    def _union(self, members: list[Any], path: str, namespace: str) -> tuple[str, Any]:
        others = [one for one in members if one != "null"]
        # A union with null declares an optional value, and all columns of Spark can be null.
        if len(others) == 1:
            ddl, reader = self.type(others[0], path, namespace)
            return ddl, [one if one == "null" else reader for one in members]
        # These are the unions that Spark's own Avro reader accepts, too (SchemaConverters).
        for wide, narrow in (("long", "int"), ("double", "float")):
            if sorted(map(str, others)) == sorted((wide, narrow)):
                return _PRIMITIVES[wide], members
        names = ", ".join(_label(one) for one in members)
        return self._unsupported(path, f"the union of {names}"), members

    def _by_name(self, name: str, path: str, namespace: str) -> str:
        if name in _PRIMITIVES:
            return _PRIMITIVES[name]
        # Avro looks up a name without a dot in the enclosing namespace first.
        for full in (f"{namespace}.{name}" if namespace and "." not in name else name, name):
            if full in self._named:
                return self._named[full]
            # A type of Spark cannot contain itself.
            if full in self._open:
                return self._unsupported(path, f"the recursive record {name}")
        return self._unsupported(path, name)

    def _named_type(
        self, schema: dict[str, Any], path: str, namespace: str
    ) -> tuple[str, dict[str, Any]]:
        name = _full_name(schema, namespace)
        reader = {**schema, "name": name}
        ddl = "string" if schema["type"] == "enum" else "binary"
        if schema["type"] == "fixed":
            ddl, reader = self._logical(reader, path, namespace, "fixed")
        elif schema["type"] == "record":
            fields = self.fields(reader, path)
            ddl = ",".join(f"{_quoted(field)}:{of}" for field, of, _ in fields)
            ddl, reader = f"struct<{ddl}>", {**reader, "fields": [of for _, _, of in fields]}
        # Avro defines a type once, and refers to it by its name afterwards.
        self._named[name] = ddl
        return ddl, reader

    def _logical(
        self, schema: dict[str, Any], path: str, namespace: str, kind: str
    ) -> tuple[str, dict[str, Any]]:
        logical = schema.get("logicalType")
        if logical == "decimal" and kind in ("bytes", "fixed"):
            precision, scale = schema.get("precision"), schema.get("scale", 0)
            if not isinstance(precision, int) or not 0 < precision <= _DECIMAL_DIGITS_MAX:
                return self._unsupported(path, f"a decimal with precision {precision}"), schema
            return f"decimal({precision},{scale})", schema
        if (kind, logical) in _LOGICAL:
            return _LOGICAL[kind, str(logical)], schema
        # Avro requires this of readers that do not know a logical type. Otherwise, fastavro would
        # return values such as times, which do not fit the column.
        plain = {key: value for key, value in schema.items() if key != "logicalType"}
        return ("binary" if kind == "fixed" else self._by_name(kind, path, namespace)), plain

    def _unsupported(self, path: str, what: str) -> str:
        self.problems.append(
            f"the Avro schema cannot be translated: {path} is {what}, which Spark has no type for;"
            " decode these values in a function of your own"
        )
        # Translating continues, so that the error names all types that are not supported.
        return "void"


def _full_name(schema: Mapping[str, Any], namespace: str) -> str:
    name = str(schema.get("name", ""))
    space = schema.get("namespace", namespace)
    return name if "." in name or not space else f"{space}.{name}"


def _label(schema: Any) -> str:
    return str(schema.get("type")) if isinstance(schema, dict) else str(schema)


def _quoted(name: str) -> str:
    return f"`{name}`"
