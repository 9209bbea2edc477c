"""`read_range`: the records of one task as Arrow batches with Spark's schema.

It runs in Spark's Python workers.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from plog.client.consumer.arrow import SparkColumns
from plog.client.consumer.simple_consumer import SimpleConsumer
from plog.errors import OffsetOutOfRange, PlogError, RequestTimedOut
from plog.spark.reader.data_loss import LogBounds, data_loss_error, within_log
from plog.spark.reader.offset_range import OffsetRange
from plog.spark.reader.reading_options import ReadingOptions
from plog.spark.reader.worker_consumers import keep_consumer, take_consumer

if TYPE_CHECKING:
    import pyarrow

log = logging.getLogger("plog.spark")

_ROWS = 1 << 14
"""Rows of an Arrow batch. With 200 bytes per record, larger ones exceed the processor's cache."""


def read_range(wanted: OffsetRange, options: ReadingOptions) -> Iterator[pyarrow.RecordBatch]:
    """Yield the records of `wanted` in the order of their offsets.

    Raises DataLossError if records were deleted after the query was planned.
    """
    consumer = take_consumer(options.client)
    is_done = False
    try:
        yield from _batches(consumer, wanted, options)
        is_done = True
    finally:
        # Spark closes the iterator of a task that it abandons, which raises GeneratorExit here.
        if is_done:
            keep_consumer(options.client, consumer)
        else:
            # Its connection may still receive a response to an earlier request.
            consumer.close()


def _batches(
    consumer: SimpleConsumer, wanted: OffsetRange, options: ReadingOptions
) -> Iterator[pyarrow.RecordBatch]:
    columns = SparkColumns(with_headers=options.include_headers)
    partition, position = wanted.partition, wanted.start_offset
    while position < wanted.end_offset:
        try:
            for batch in consumer.arrow_batches(
                partition, position, wanted.end_offset, max_records=_ROWS, build=columns.build
            ):
                yield batch
                # An error after this batch must not return its records twice.
                position = batch["offset"][-1].as_py() + 1
            return
        except (OffsetOutOfRange, RequestTimedOut) as error:
            # Since the lookup in the driver, retention has passed the position, or the log was
            # truncated; a fetch at the end of a log waits until it times out.
            rest = OffsetRange(
                partition=partition, start_offset=position, end_offset=wanted.end_offset
            )
            position = _after_loss(consumer, rest, options, error)


def _after_loss(
    consumer: SimpleConsumer, rest: OffsetRange, options: ReadingOptions, error: PlogError
) -> int:
    """Return the offset at which to continue.

    Raises DataLossError if that is not permitted, or `error` if no records are missing.
    """
    partition = rest.partition
    found = LogBounds(
        consumer.beginning_offsets([partition])[partition],
        consumer.end_offsets([partition])[partition],
    )
    remaining, losses = within_log(rest, found)
    if not losses:
        raise error
    if options.fail_on_data_loss:
        raise data_loss_error(losses)
    log.warning("continuing after data loss: %s", "; ".join(losses))
    # Offsets past the end will not be written again before the query has ended.
    return remaining.start_offset if remaining.size else rest.end_offset
