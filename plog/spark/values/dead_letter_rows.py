"""`dead_letters`: the records that `decode` could not decode, as rows for a sink.

A dead letter has the key and the value of its record, unchanged. Its headers are those of the
record, if the rows have them, and one for each of the facts in `SOURCE_HEADERS`, as text.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from plog.settings import ConfigError
from plog.spark.values.value_columns import CORRUPT, ERROR, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SOURCE_HEADERS: Final = {
    "topic": "plog.source.topic",
    "partition": "plog.source.partition",
    "offset": "plog.source.offset",
    "timestamp": "plog.source.timestamp",
    ERROR: "plog.error",
}
"""The header for each column; the timestamp is in ms since 1970."""


def check_dead_letter_columns(columns: Collection[str]) -> None:
    """Check that the rows come from `decode` and still have its columns. Raises ConfigError."""
    missing = [name for name in ("value", CORRUPT, ERROR) if name not in columns]
    if missing:
        raise ConfigError(
            [
                f"cannot find dead letters: the rows have no column {', '.join(missing)};"
                " pass the result of decode before selecting columns from it"
            ]
        )


def dead_letters(df: DataFrame) -> DataFrame:
    """Return the rows of `df`, the result of `decode`, that were not decoded, as records.

    The columns are ``value``, ``key`` (if `df` has one) and ``headers``, which the sink writes to
    the topic of its option. Raises ConfigError if a column of `decode` is missing.
    """
    from pyspark.sql import functions as F

    check_dead_letter_columns(df.columns)
    added = []
    for column, header in SOURCE_HEADERS.items():
        if column in df.columns:
            fact = F.col(quoted(column))
            if column == "timestamp":
                # The text of a timestamp would depend on the time zone of the session.
                fact = F.unix_millis(fact)
            # The sink's headers have binary values.
            text = fact.cast("string").cast("binary")
            added.append(F.struct(F.lit(header).alias("key"), text.alias("value")))
    headers = F.array(*added)
    if "headers" in df.columns:
        # `concat` returns null if one of its arrays is null.
        headers = F.when(F.col("headers").isNull(), headers).otherwise(
            F.concat(F.col("headers"), headers)
        )
    names = [name for name in ("value", "key") if name in df.columns]
    return df.where(F.col(CORRUPT).isNotNull()).select(*names, headers.alias("headers"))
