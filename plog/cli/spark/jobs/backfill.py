"""``plog spark backfill``: write a time range of topics to Parquet tables, then the stream."""

from __future__ import annotations

import argparse
from typing import Final

from plog.cli.options import positive
from plog.cli.parser import add_examples
from plog.cli.spark.jobs.job_parser import (
    JobCommand,
    add_source_options,
    add_trigger_options,
    source_of,
    trigger_of,
)
from plog.cli.spark.jobs.warehouse import add_table_options, table_of
from plog.cli.time_range import add_time_range_options
from plog.spark.jobs.backfill.job import BackfillOptions, run_backfill
from plog.spark.jobs.local_folder import local_folder

# The same as in the job. Larger slices produce fewer files, but need more disk space for shuffles.
_SLICE_SIZE: Final = 5_000_000


def configure(parser: argparse.ArgumentParser) -> None:
    """Write a time range of topics to Parquet tables, then the stream, without gap or overlap."""
    add_source_options(parser)
    add_time_range_options(
        parser,
        "start of the range",
        "end of the range",
        ("the first record", "the last record when the job first starts"),
    )
    parser.add_argument(
        "--slice-size",
        type=positive,
        default=_SLICE_SIZE,
        metavar="N",
        help="maximum number of records in a batch of the range (default: %(default)s)",
    )
    parser.add_argument(
        "--range-only",
        action="store_true",
        help="end after the range (default: continue with the stream)",
    )
    add_trigger_options(parser, interval_s=60)
    add_table_options(parser)
    add_examples(
        parser,
        (
            "store what has been kept since a date, and continue with new records",
            "plog spark backfill --bootstrap-server localhost:9092 --topic clicks --format json"
            " --from 2026-01-01 --output warehouse --checkpoint checkpoints/backfill",
        ),
    )


def options_of(arguments: argparse.Namespace) -> BackfillOptions:
    """Return the options of the job. Raises ConfigError, UsageError or OSError."""
    return BackfillOptions(
        source=source_of(arguments),
        table=table_of(arguments),
        # The job stores its plan there, in a file that it renames.
        checkpoint=local_folder(arguments.checkpoint, "--checkpoint"),
        from_ms=arguments.from_ms,
        to_ms=arguments.to_ms,
        slice_size=arguments.slice_size,
        stream=not arguments.range_only,
        trigger=trigger_of(arguments),
    )


COMMAND: Final = JobCommand(
    name="backfill", configure=configure, options=options_of, run=run_backfill
)
