"""`decode`: typed columns of the values, or keys, of records.

Spark's own functions parse JSON and CSV; avro_values.py parses Avro. The rows may come from any
source with a column of that name, in a batch or a stream. Nothing is dropped: a value that does not
parse keeps its row, with null fields, and dead_letter_rows.py turns such rows into records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from plog.settings import ConfigError
from plog.spark.values.avro_schema import parse_avro_schema
from plog.spark.values.avro_values import check_reader, decode_avro
from plog.spark.values.value_columns import (
    CORRUPT,
    ERROR,
    check_names,
    check_request,
    ddl_of,
    mismatch,
    not_avro,
    not_text,
    quoted,
)

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

_PARSED: Final = "__plog_parsed"
_TEXT_SCHEMA: Final = "text string"


def decode(
    df: DataFrame,
    format: str,
    schema: str | StructType | None = None,
    *,
    column: str = "value",
    into: str | None = None,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Add a column for each field of `schema`, decoded from `column`.

    `format` is ``json``, ``csv``, ``text`` or ``avro``. The schema is DDL text or a StructType; for
    Avro, the writers' schema as JSON text; for text, one string column, by default ``text``. With
    `into`, the fields become one struct column of that name. `options` are those of Spark's
    ``from_json`` or ``from_csv``.

    Two more columns are strings: ``_corrupt_record`` contains what did not parse (in hexadecimal if
    it is Avro), and ``_error`` the reason. Both are null for decoded values and for null values,
    whose fields are null. If the rows already have these columns, because `decode` has added them
    for another column, they keep the first error.

    Raises ConfigError for wrong arguments, and MissingExtra for Avro without fastavro.
    """
    given = dict(options or {})
    check_request(format, column, df.columns, given)
    # `_with_columns` adds these two again, also if another `decode` has added them before.
    existing = [name for name in df.columns if name not in (CORRUPT, ERROR)]
    if format == "avro":
        parsed = _parsed_avro(df, column, schema)
    else:
        parsed = _parsed_text(df, format, column, _struct(format, schema), given)
    check_names(existing, parsed.fields, into)
    return _with_columns(df, existing, parsed, into)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parsed:
    """Expressions of one parsed column: a struct column, and what is wrong with it."""

    rows: DataFrame
    """The rows with the column ``__plog_parsed``."""
    record: Column
    fields: tuple[str, ...]
    corrupt: Column
    error: Column


def _struct(value_format: str, schema: str | StructType | None) -> StructType:
    """Return the schema without ``_corrupt_record``, which jobs of Spark often declare."""
    from pyspark.sql.types import DataType, StringType, StructType

    if schema is None and value_format != "text":
        raise ConfigError(
            [f'cannot decode {value_format}: the schema is missing; pass "id bigint, name string"']
        )
    made = _TEXT_SCHEMA if schema is None else schema
    if isinstance(made, str):
        made = DataType.fromDDL(made)
    if not isinstance(made, StructType):
        raise ConfigError(
            [f'cannot decode {value_format}: the schema {schema} has no names; write "name type"']
        )
    fields = [one for one in made.fields if one.name != CORRUPT]
    if value_format == "text" and [one.dataType for one in fields] != [StringType()]:
        raise ConfigError(
            ["cannot decode text: the schema is not one string column; cast the column afterwards"]
        )
    if not fields:
        raise ConfigError([f"cannot decode {value_format}: the schema has no columns"])
    return StructType(fields)


def _parsed_text(
    df: DataFrame,
    value_format: str,
    column: str,
    schema: StructType,
    options: Mapping[str, str],
) -> _Parsed:
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType

    text = F.col(quoted(column)).cast("string")
    # Spark does not check the bytes that it casts, and Python cannot read other bytes as a string.
    is_text = F.is_valid_utf8(text)
    usable = F.when(is_text, text)
    fields = tuple(schema.fieldNames())
    # The mode FAILFAST would end the query at the first value that does not parse.
    settings = {**options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    # The parsers fill this column only if it is in their schema.
    with_corrupt = schema.__class__([*schema.fields]).add(CORRUPT, StringType())
    if value_format == "json":
        made = F.from_json(usable, with_corrupt, settings)
    elif value_format == "csv":
        types = [(one.name, one.dataType.simpleString()) for one in with_corrupt.fields]
        made = F.from_csv(usable, ddl_of(types), settings)
    else:
        made = F.struct(usable.alias(fields[0]), F.lit(None).cast("string").alias(CORRUPT))
    record = F.col(_PARSED)
    # The parsers return null instead of a record for an empty text.
    unparsed = F.when(record.isNull(), usable).otherwise(record.getField(CORRUPT))
    return _Parsed(
        # A column of its own, so that Spark parses each value once for all columns. It parses again
        # for a filter on them, which it moves below this projection; that is cheap in the JVM.
        rows=df.withColumn(_PARSED, made),
        record=record,
        fields=fields,
        corrupt=F.when(~is_text, F.make_valid_utf8(text)).otherwise(unparsed),
        error=F.when(~is_text, not_text(column)).when(
            unparsed.isNotNull(), mismatch(column, value_format)
        ),
    )


def _parsed_avro(df: DataFrame, column: str, schema: str | StructType | None) -> _Parsed:
    import pyarrow as pa
    from pyspark.sql import functions as F
    from pyspark.sql.functions import arrow_udf
    from pyspark.sql.pandas.types import to_arrow_type
    from pyspark.sql.types import DataType, StringType, StructType

    if not isinstance(schema, str):
        raise ConfigError(
            ["cannot decode avro: the schema is not text; pass an Avro schema as JSON"]
        )
    avro = parse_avro_schema(schema)
    check_reader(avro.reader)
    record_type = DataType.fromDDL(avro.columns)
    # Bound to local names, because the function is pickled with everything that it uses.
    reader, arrow_type = avro.reader, to_arrow_type(record_type, timezone="UTC")

    def parse(values: pyarrow.Array) -> pyarrow.Array:
        return decode_avro(values, reader, arrow_type)

    # Spark determines the kind of function by these; as text, they could not be resolved.
    parse.__annotations__ = {"values": pa.Array, "return": pa.Array}
    returned = StructType().add("record", record_type).add("error", StringType())
    # Spark would also move a filter on the new columns below the projection, and call Python for it
    # a second time. It moves nothing past a function that is not deterministic.
    udf = arrow_udf(parse, returned).asNondeterministic()
    binary = F.col(quoted(column)).cast("binary")
    error = F.col(_PARSED).getField("error")
    return _Parsed(
        rows=df.withColumn(_PARSED, udf(binary)),
        record=F.col(_PARSED).getField("record"),
        fields=avro.names,
        corrupt=F.when(error.isNotNull(), F.lower(F.hex(binary))),
        error=F.concat(F.lit(not_avro(column)), error),
    )


def _with_columns(
    df: DataFrame, existing: list[str], parsed: _Parsed, into: str | None
) -> DataFrame:
    from pyspark.sql import functions as F

    values = [parsed.record.getField(name).alias(name) for name in parsed.fields]
    if into is not None:
        whole = F.struct(*values)
        # Otherwise, a null value would become a struct of nulls, which is not null.
        values = [F.when(parsed.record.isNotNull(), whole).alias(into)]
    outcome = []
    for name, found in ((CORRUPT, parsed.corrupt), (ERROR, parsed.error)):
        before = [F.col(name)] if name in df.columns else []
        outcome.append(F.coalesce(*before, found).alias(name))
    return parsed.rows.select(*(F.col(quoted(name)) for name in existing), *values, *outcome)
