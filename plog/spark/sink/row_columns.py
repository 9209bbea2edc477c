"""The columns of rows to write, checked before a query starts. Pure.

Columns with other names are ignored, as they are by Spark's Kafka connector.

Source: Spark 4.2 KafkaWriter.validateQuery.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from plog.client.settings import ConfigError

# It is also the type of this column in read queries, so their rows can be written as they are.
_HEADERS: Final = "array<struct<key:string,value:binary>>"
_TYPES: Final = {
    "topic": ("string",),
    "partition": ("int",),
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": (_HEADERS,),
}


def check_row_columns(columns: Iterable[tuple[str, str]], *, topic: str | None) -> None:
    """Check names and types, the latter in Spark's notation. Raises ConfigError.

    `topic` is the option, without which the column of that name is required.
    """
    found = dict(columns)
    problems = [
        f"the column {name} has the type {found[name]}: it must be {' or '.join(types)};"
        " convert it with cast"
        for name, types in _TYPES.items()
        if name in found and found[name] not in types
    ]
    if "value" not in found:
        problems.append("there is no column value: rename a column, or add one with to_json")
    if topic is None and "topic" not in found:
        problems.append("the topic is missing: set the option topic, or add a column topic")
    if problems:
        raise ConfigError(problems)
