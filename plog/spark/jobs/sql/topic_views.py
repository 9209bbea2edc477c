"""Views of topics: the columns of the record, and of the fields of JSON values or the text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from plog.spark.jobs.job_source import connecting, read_offsets
from plog.spark.jobs.sql.json_fields import field_columns, sampled_fields, schema_of
from plog.spark.jobs.sql.sql_options import SqlOptions
from plog.spark.jobs.sql.topic_sample import TopicReading
from plog.spark.options.option_names import KAFKA
from plog.spark.values.decoded_values import decode
from plog.spark.values.value_columns import CORRUPT, quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_FIELDS: Final = "__plog_fields"
RECORD_COLUMNS: Final = ("_topic", "_partition", "_offset", "_timestamp", "_key", "_headers")
_EARLIEST: Final = -2


def add_view(spark: SparkSession, topic: str, reading: TopicReading, options: SqlOptions) -> None:
    """Make a topic a table of the session."""
    rows = records(spark, reading, options)
    table(rows, reading, options).createOrReplaceTempView(quoted(topic))


def records(spark: SparkSession, reading: TopicReading, options: SqlOptions) -> DataFrame:
    """Return the records in the time range of the query."""
    from pyspark.sql import functions as F

    more = {
        # The ends are those of completed transactions.
        f"{KAFKA}isolation.level": "read_committed",
        "includeHeaders": str(options.uses_headers).lower(),
        **_time_options(spark, options),
    }
    # The ends are the same for all parts of a query that reads the topic several times.
    starts = dict.fromkeys(reading.ends, _EARLIEST)
    rows = read_offsets(spark, connecting(options.client), starts, reading.ends, more)
    if options.since_ms is not None:
        rows = rows.where(F.col("timestamp") >= F.timestamp_millis(F.lit(options.since_ms)))
    if options.before_ms is not None:
        rows = rows.where(F.col("timestamp") < F.timestamp_millis(F.lit(options.before_ms)))
    return rows


def _time_options(spark: SparkSession, options: SqlOptions) -> Mapping[str, str]:
    """Return the options with which the source skips records that the query does not need."""
    made = {}
    if options.since_ms is not None:
        # Partitions whose records are all older are not read.
        made["startingTimestamp"] = str(options.since_ms)
        made["startingOffsetsByTimestampStrategy"] = "latest"
    # Spark rejects filters unless it may push them.
    if spark.conf.get("spark.sql.python.filterPushdown.enabled", "false") == "true":
        made["pushFilters"] = "true"
    return made


def table(rows: DataFrame, reading: TopicReading, options: SqlOptions) -> DataFrame:
    """Return the columns of the table."""
    from pyspark.sql import functions as F

    fields = sampled_fields(reading.values)
    if fields is None:
        return rows.select(_text(F.col("value")).alias("value"), *_record_columns(options))
    columns = field_columns(fields, [*RECORD_COLUMNS, CORRUPT])
    kept = {column.field for column in columns}
    schema = schema_of(one for one in fields if one[0] in kept)
    decoded = decode(rows, "json", schema, into=_FIELDS)
    return decoded.select(
        *(F.col(_FIELDS).getField(one.field).alias(one.name) for one in columns),
        *_record_columns(options),
        CORRUPT,
    )


def _record_columns(options: SqlOptions) -> list[Column]:
    from pyspark.sql import functions as F

    columns = [
        F.col(name).alias(f"_{name}") for name in ("topic", "partition", "offset", "timestamp")
    ]
    columns.append(_text(F.col("key")).alias("_key"))
    if options.uses_headers:
        texts = F.transform(
            "headers",
            lambda one: F.struct(
                one.getField("key").alias("key"), _text(one.getField("value")).alias("value")
            ),
        )
        columns.append(texts.alias("_headers"))
    return columns


def _text(column: Column) -> Column:
    from pyspark.sql import functions as F

    # Spark does not check the bytes that it casts, and Python cannot read other bytes as a string.
    return F.make_valid_utf8(column.cast("string"))
