"""The rows of a table: the columns of the record, and those of its decoded value.

A value that does not fit becomes a dead letter. The functions work on the rows of one topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from plog.spark.jobs.value_format import RAW, ValueFormat
from plog.spark.jobs.warehouse.table_columns import (
    COLUMNS_MAX,
    RECORD_COLUMNS,
    TableColumns,
)
from plog.spark.values.dead_letter_rows import dead_letters
from plog.spark.values.decoded_values import decode
from plog.spark.values.value_columns import CORRUPT, ERROR, ddl_of, quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_FIELDS: Final = "__plog_fields"
_HOUR_MS: Final = 3_600_000
PARTITION_COLUMNS: Final = ("date", "hour")
# from_json needs a field; no value has one with this name.
_NO_FIELD: Final = "__plog_none"


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedRows:
    """Rows with the struct column of their fields; its fields with their types are `fields`."""

    rows: DataFrame
    fields: tuple[tuple[str, str], ...]


def decoded_rows(batch: DataFrame, values: ValueFormat, columns: TableColumns) -> DecodedRows:
    """Return the rows with their values decoded, by the schema or else by the `columns`.

    Raises ConfigError for an invalid schema.
    """
    if values.name == RAW:
        return DecodedRows(rows=batch, fields=())
    schema = values.schema
    if values.is_inferred:
        fields = [(column.field, column.type) for column in columns.columns]
        schema = ddl_of(fields or [(_NO_FIELD, "string")])
    rows = decode(batch, values.name, schema, into=_FIELDS, options=values.options)
    if values.is_inferred:
        rows = _without_hidden_fields(rows, columns)
        return DecodedRows(rows=rows, fields=tuple(fields))
    found = rows.schema[_FIELDS].dataType.fields
    return DecodedRows(
        rows=rows, fields=tuple((one.name, one.dataType.simpleString()) for one in found)
    )


def _without_hidden_fields(rows: DataFrame, columns: TableColumns) -> DataFrame:
    """Make dead letters of values with a field that differs from another one only in case."""
    from pyspark.sql import functions as F

    if not columns.columns:
        return rows
    text = F.col("value").cast("string")
    known = F.array(*(F.lit(column.field) for column in columns.columns))
    lower = F.array(*(F.lit(column.field.lower()) for column in columns.columns))
    usable = F.when(F.col(CORRUPT).isNull() & F.is_valid_utf8(text), text)
    # `from_json` ignores such fields, and the table cannot have a column for them, so their values
    # would be lost.
    hidden = F.filter(
        F.json_object_keys(usable),
        lambda name: F.array_contains(lower, F.lower(name)) & ~F.array_contains(known, name),
    )
    is_hidden = F.coalesce(F.size(hidden) > 0, F.lit(False))
    error = F.concat(
        F.lit("the name of a field differs from a column only in case: "), F.array_join(hidden, ",")
    )
    return rows.withColumns(
        {
            CORRUPT: F.when(is_hidden, text).otherwise(F.col(CORRUPT)),
            ERROR: F.when(is_hidden, error).otherwise(F.col(ERROR)),
        }
    )


def table_rows(decoded: DecodedRows, columns: TableColumns) -> DataFrame:
    """Return the rows that fit, with the columns of the table, and their date and hour in UTC."""
    from pyspark.sql import functions as F

    rows = decoded.rows
    selected = [F.col(name) for name in RECORD_COLUMNS]
    if CORRUPT in rows.columns:
        rows = rows.where(F.col(CORRUPT).isNull())
        # A column that the schema does not contain any more is missing in new files, and so null
        # for readers.
        names = {name for name, _ in decoded.fields}
        selected += [
            # The schema may have a narrower type than the column, which keeps the type of an
            # earlier schema.
            F.col(_FIELDS).getField(one.field).cast(one.type).alias(one.name)
            if _is_number(one.type)
            else F.col(_FIELDS).getField(one.field).alias(one.name)
            for one in columns.columns
            if one.field in names
        ]
    else:
        selected.append(F.col("value"))
    return rows.select(*selected, *_hour_columns())


def _is_number(of: str) -> bool:
    return of in ("tinyint", "smallint", "int", "bigint", "float", "double")


def _hour_columns() -> list[Column]:
    """Return date and hour, which must not depend on the time zone of the session."""
    from pyspark.sql import functions as F

    hours = F.floor(F.unix_millis(F.col("timestamp")) / F.lit(_HOUR_MS)).cast("bigint")
    date = F.date_from_unix_date(F.floor(hours / F.lit(24)).cast("int"))
    # Records without a timestamp have the time -1, which is in the last hour of 1969.
    hour = F.lpad(F.pmod(hours, F.lit(24)).cast("string"), 2, "0")
    return [date.alias("date"), hour.alias("hour")]


def dead_letter_rows(decoded: DecodedRows) -> DataFrame | None:
    """Return the values that do not fit as records, or None if every value fits."""
    return dead_letters(decoded.rows) if CORRUPT in decoded.rows.columns else None


def json_kinds(batch: DataFrame) -> Mapping[str, Mapping[str, frozenset[str]]]:
    """Return the kinds of the values of each field, by topic, in a batch of JSON objects.

    The kinds are Spark's names for the types of variants. A topic has at most one more field than a
    table can have columns.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.window import Window

    text = F.col("value").cast("string")
    parsed = F.try_parse_json(F.when(F.is_valid_utf8(text), text)).alias("__plog_variant")
    rows = batch.select(F.col("topic").alias("__plog_topic"), parsed)
    variants = batch.sparkSession.tvf.variant_explode(F.col("__plog_variant").outer())
    # Only the first word matters: DECIMAL(2,1) has digits, and OBJECT the types of its fields.
    kind = F.regexp_extract(F.schema_of_variant(F.col("value")), "^[A-Z]+", 0)
    of_topic = Window.partitionBy("__plog_topic").orderBy("key")
    fields = (
        rows.lateralJoin(variants)
        .where(F.col("key").isNotNull())
        .groupBy("__plog_topic", "key")
        .agg(F.collect_set(kind))
        .withColumn("__plog_number", F.row_number().over(of_topic))
        # The driver collects the fields, and one too many is enough to reject them.
        .where(F.col("__plog_number") <= COLUMNS_MAX + 1)
        .collect()
    )
    found: dict[str, dict[str, frozenset[str]]] = {}
    for topic, field, kinds, _ in fields:
        found.setdefault(topic, {})[field] = frozenset(kinds)
    return found


def topic_counts(batch: DataFrame) -> dict[str, int]:
    """Return the number of records of each topic in a batch."""
    return {str(row[0]): int(row[1]) for row in batch.groupBy("topic").count().collect()}


def of_topic(batch: DataFrame, topic: str) -> DataFrame:
    """Return the rows of one topic."""
    from pyspark.sql import functions as F

    return batch.where(F.col(quoted("topic")) == F.lit(topic))
