"""`PlogSource`: the entry point of Spark, for ``format("plog")``.

Spark imports this module once per application even if the application never uses it, so it imports
little. Readers and writers are imported when a query is planned.

Source: pyspark 4.2 pyspark.sql.datasource.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from plog.settings import ConfigError
from plog.spark.frozen_modules import freeze_modules
from plog.spark.options.option_values import OptionReader

if TYPE_CHECKING:
    from plog.spark.options.sink_options import SinkOptions
    from plog.spark.reader.batch_reader import BatchReader
    from plog.spark.reader.stream_reader import StreamReader
    from plog.spark.sink.deduplicating_writer import DeduplicatingWriter
    from plog.spark.sink.record_writers import BatchWriter, StreamWriter


class PlogSource(DataSource):
    """A data source with the columns and options of Spark's Kafka connector."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "plog"

    def schema(self) -> StructType:
        """Return the columns, which are the same for all topics."""
        freeze_modules()
        # Other wrong options are reported by the reader, together.
        with_headers = OptionReader(self.options).boolean("includeHeaders", False)
        return source_schema(with_headers=with_headers)

    def reader(self, schema: StructType) -> BatchReader:
        """Return the reader for a batch query. Raises ConfigError for invalid options."""
        freeze_modules()
        from plog.spark.options.source_options import read_source_options
        from plog.spark.reader.batch_reader import BatchReader, FilteringBatchReader

        options = read_source_options(self.options, is_stream=False)
        _check_schema(schema, with_headers=options.include_headers)
        # Spark rejects every reader that defines `pushFilters`, unless its own setting allows
        # filters.
        return FilteringBatchReader(options) if options.push_filters else BatchReader(options)

    def streamReader(self, schema: StructType) -> StreamReader:
        """Return the reader for a streaming query. Raises ConfigError for invalid options."""
        freeze_modules()
        from plog.spark.options.source_options import read_source_options
        from plog.spark.reader.stream_reader import StreamReader

        options = read_source_options(self.options, is_stream=True)
        _check_schema(schema, with_headers=options.include_headers)
        return StreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Return the writer for a batch query. Raises ConfigError for invalid arguments."""
        from plog.spark.sink.record_writers import BatchWriter

        if overwrite:
            # The connector rejects this mode, too.
            raise ConfigError(['the mode is "overwrite": a topic only grows; use mode("append")'])
        options = self._sink_options(schema)
        if options.deduplicate is not None:
            raise ConfigError(
                [
                    "deduplicate is set: only a streaming query repeats a batch with the same id;"
                    ' use writeStream.format("plog"), or remove the option'
                ]
            )
        return BatchWriter(options)

    def streamWriter(
        self, schema: StructType, overwrite: bool
    ) -> StreamWriter | DeduplicatingWriter:
        """Return the writer for a stream. Raises ConfigError for invalid arguments.

        Spark calls it in the driver before each batch, and again to commit or abort the batch.
        """
        from plog.spark.sink.record_writers import StreamWriter

        # Spark sets `overwrite` for the output mode complete. Its rows are appended, too, as by the
        # connector.
        options = self._sink_options(schema)
        if options.deduplicate is None:
            return StreamWriter(options)
        from plog.spark.sink.deduplicating_writer import DeduplicatingWriter

        # The constructor reads the notes of the name. The writer that commits the batch thus also
        # finds notes that another query has written in the meantime.
        return DeduplicatingWriter(options, options.deduplicate)

    def _sink_options(self, schema: StructType) -> SinkOptions:
        freeze_modules()
        from plog.spark.options.sink_options import read_sink_options
        from plog.spark.sink.row_columns import check_row_columns

        options = read_sink_options(self.options)
        # The check receives the types as text, so that it needs no pyspark.
        columns = [(field.name, field.dataType.simpleString()) for field in schema.fields]
        check_row_columns(columns, topic=options.topic)
        return options


def source_schema(*, with_headers: bool) -> StructType:
    """Return the schema of the connector, in its order of columns."""
    # Spark compares these types with those of a task's first Arrow batch, and fails the task if
    # they differ. `SparkColumns` builds the batches.
    schema = (
        StructType()
        .add("key", BinaryType())
        .add("value", BinaryType())
        .add("topic", StringType())
        .add("partition", IntegerType())
        .add("offset", LongType())
        .add("timestamp", TimestampType())
        .add("timestampType", IntegerType())
    )
    if with_headers:
        header = StructType().add("key", StringType()).add("value", BinaryType())
        schema = schema.add("headers", ArrayType(header))
    return schema


def _check_schema(schema: StructType, *, with_headers: bool) -> None:
    # If the application has set a schema, Spark passes it instead of the result of `schema`.
    if schema != source_schema(with_headers=with_headers):
        raise ConfigError(
            [
                "a schema is set: the columns of this source are fixed; remove the schema, and"
                " convert the column value with from_json or cast"
            ]
        )
