"""The columns of events: fields of the decoded value, and columns of the record, by their names.

Jobs that group records by name and time use them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from plog.spark.jobs.value_format import RAW, ValueFormat
from plog.spark.values.decoded_values import decode

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

RECORD_COLUMNS: Final = ("topic", "partition", "key", "timestamp")
"""The columns of records that need no decoding; fields with these names cannot be used."""
# In a struct of its own, a field keeps its name, whatever the columns of the record are.
FIELDS: Final = "__plog_fields"
"""The struct column with the fields of the decoded value."""


def column_problems(values: ValueFormat, names: Iterable[str]) -> list[str]:
    """Return a message for each name that rows without decoded values do not have.

    >>> column_problems(ValueFormat(), ["topic"])
    []
    """
    if values.name != RAW:
        return []
    return [
        f"cannot find {name}: the values are not decoded; set a format, or use one of"
        f" {', '.join(RECORD_COLUMNS)}"
        for name in names
        if name not in RECORD_COLUMNS
    ]


def decoded_events(rows: DataFrame, values: ValueFormat) -> DataFrame:
    """Return the rows of the source with their fields, and the columns of `decode`."""
    if values.name == RAW:
        return rows
    return decode(rows, values.name, values.schema, into=FIELDS, options=values.options)


def event_column(name: str) -> Column:
    """Return a column of the record or a field of the value."""
    from pyspark.sql import functions as F

    return F.col(name) if name in RECORD_COLUMNS else F.col(FIELDS).getField(name)


def event_text(name: str) -> Column:
    """Return a column as text; keys that are not UTF-8 are in hexadecimal."""
    from pyspark.sql import functions as F

    text = event_column(name).cast("string")
    if name != "key":
        return text
    # Python cannot read other bytes as a string, and replacing them would make keys equal.
    return F.when(F.is_valid_utf8(text), text).otherwise(F.lower(F.hex(name)))


def event_time(name: str) -> Column:
    """Return a column as a timestamp; text that is not a time is null."""
    # With ANSI SQL, Spark's default, a cast would fail the query.
    return event_column(name).try_cast("timestamp")
