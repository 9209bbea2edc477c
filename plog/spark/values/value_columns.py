"""The columns that `decode` adds, and the checks of its arguments. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from plog.settings import ConfigError, nearest_name

CORRUPT: Final = "_corrupt_record"
"""What did not parse, as text; Spark's name for it."""
ERROR: Final = "_error"
"""The reason; both are null if the value was decoded."""
FORMATS: Final = ("json", "csv", "text", "avro")
_OWN_OPTIONS: Final = {
    "mode": "decode always continues",
    "columnNameOfCorruptRecord": "it is fixed",
}


def check_request(
    value_format: str, column: str, columns: Collection[str], options: Mapping[str, str]
) -> None:
    """Check what `decode` is asked for, before the schema. Raises ConfigError.

    `columns` are those of the rows to decode.
    """
    problems = []
    if value_format not in FORMATS:
        near = nearest_name(value_format, FORMATS)
        hint = f"did you mean {near}?" if near else f"use one of {', '.join(FORMATS)}"
        problems.append(f"cannot decode the format {value_format!r}: {hint}")
    elif options and value_format in ("text", "avro"):
        problems.append(f"the format {value_format} has no options; remove {', '.join(options)}")
    if column not in columns:
        problems.append(
            f"cannot decode the column {column}: the rows have only {', '.join(columns)}"
        )
    # Spark ignores the case of option names.
    lower = {name.lower() for name in options}
    problems += [
        f"the option {name} cannot be set: {reason}"
        for name, reason in _OWN_OPTIONS.items()
        if name.lower() in lower
    ]
    if problems:
        raise ConfigError(problems)


def check_names(columns: Collection[str], fields: Sequence[str], into: str | None) -> None:
    """Check that no new column has the name of another one. Raises ConfigError.

    Without `into`, each of the `fields` becomes a column.
    """
    # Spark's names are equal if they differ only in case.
    taken = {name.lower() for name in columns} | {CORRUPT, ERROR}
    added = fields if into is None else [into]
    same = [name for name in added if name.lower() in taken]
    if not same:
        return
    remedy = "choose another name"
    if into is None:
        remedy = 'set into="record" to get the fields as one column of that name'
    raise ConfigError(
        [f"cannot add the columns of the schema: {', '.join(same)} already exists; {remedy}"]
    )


def mismatch(column: str, value_format: str) -> str:
    """Return the error of a value that is text, but not in its format.

    >>> mismatch("value", "json")
    'the value is not JSON that fits the schema'
    """
    return f"the {column} is not {value_format.upper()} that fits the schema"


def not_text(column: str) -> str:
    """Return the error of a value that is not text."""
    return f"the {column} is not UTF-8 text"


def not_avro(column: str) -> str:
    """Return the start of the error of a value that is not Avro; fastavro's reason follows."""
    return f"the {column} is not Avro that fits the schema: "


def ddl_of(fields: Sequence[tuple[str, str]]) -> str:
    """Return DDL text for names and types.

    >>> ddl_of([("id", "bigint"), ("full `name`", "string")])
    '`id` bigint, `full ``name``` string'
    """
    return ", ".join(f"{quoted(name)} {of}" for name, of in fields)


def quoted(name: str) -> str:
    """Return a name as Spark reads it, whatever it contains.

    >>> quoted("a.b`c")
    '`a.b``c`'
    """
    # Without the backticks, Spark would take a dot for the field of a struct.
    return "`" + name.replace("`", "``") + "`"
