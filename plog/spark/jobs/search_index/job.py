"""`run_search_index`: add the texts of topics to a search index, each record once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plog.search.index_folder import IndexLayout, column_name, open_index
from plog.spark.jobs.event_columns import FIELDS, decoded_events
from plog.spark.jobs.job_source import append_records, read_stream
from plog.spark.jobs.progress import Report, counted, print_progress
from plog.spark.jobs.search_index.search_index_options import SearchIndexOptions, text_fields
from plog.spark.jobs.search_index.shard_writing import COUNTS, INPUT, ShardWriting
from plog.spark.values.dead_letter_rows import dead_letters
from plog.spark.values.value_columns import CORRUPT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def run_search_index(
    spark: SparkSession, options: SearchIndexOptions, *, report: Report = print_progress
) -> None:
    """Add records until the query is stopped, or has read what is available.

    After an interruption, the same call continues. Raises SearchError if the folder contains
    something else, ConfigError for wrong fields, and StreamingQueryException if a batch fails.
    """
    topic = options.dead_letter_topic
    rows = read_stream(spark, options.source, include_headers=topic is not None)
    rows = decoded_events(rows, options.values)
    found = [(one.name, one.dataType.simpleString()) for one in rows.schema[FIELDS].dataType.fields]
    fields = text_fields(found, options.texts)
    layout = open_index(
        options.index,
        [column_name(name) for name in fields],
        shards=options.shards,
        tokenizer=options.tokenizer,
    )
    writing = ShardWriting(options.index, layout)

    def write(batch: DataFrame, batch_id: int) -> None:
        # Otherwise, Spark would read and decode the batch twice.
        batch = batch if topic is None else batch.persist()
        try:
            if topic is not None:
                append_records(dead_letters(batch), options.source, topic)
            added = _write_shards(shard_rows(batch, fields, layout), writing)
        finally:
            batch.unpersist()
        report(f"batch {batch_id}: {added}")

    writer = rows.writeStream.queryName(f"plog-search-index {options.index}").foreachBatch(write)
    writer = options.trigger.apply(writer).option("checkpointLocation", options.checkpoint)
    writer.start().awaitTermination()


def shard_rows(rows: DataFrame, fields: tuple[str, ...], layout: IndexLayout) -> DataFrame:
    """Return the rows for `ShardWriting`: one task for each shard, with all of its rows.

    The column ``shard`` has the same value as `shard_of`.
    """
    from pyspark.sql import functions as F

    # Python and Spark compute the same CRC-32. Python's `hash` differs between processes.
    place = F.concat_ws("/", "topic", F.col("partition").cast("string"), F.col("offset"))
    shard = F.crc32(place.cast("binary")) % F.lit(layout.shards)
    # Spark does not check the bytes that it casts, and Python cannot read other bytes as a string.
    texts = [F.make_valid_utf8(F.col(FIELDS).getField(name).cast("string")) for name in fields]
    made = rows.select(
        shard.cast("int").alias("shard"),
        "topic",
        "partition",
        "offset",
        F.unix_millis("timestamp").alias("timestamp_ms"),
        F.array(*texts).alias("texts"),
        F.col(CORRUPT).isNotNull().alias("is_dead"),
    )
    assert tuple(made.columns) == INPUT
    # Writers of a SQLite database exclude each other, so one task writes each shard.
    return made.repartitionById(layout.shards, "shard")


def _write_shards(rows: DataFrame, writing: ShardWriting) -> str:
    """Add rows to the index, and describe how many."""
    schema = ", ".join(f"{name} bigint" for name in COUNTS)
    sums = {name: "sum" for name in COUNTS}
    [total] = rows.mapInArrow(writing, schema).agg(sums).collect()
    # The sum of no rows is null.
    indexed, empty, dead = (total[f"sum({name})"] or 0 for name in COUNTS)
    return (
        f"{counted(indexed, 'record')} indexed, {counted(empty, 'record')} without text,"
        f" {counted(dead, 'dead letter')}"
    )
