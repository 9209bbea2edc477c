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
from plog.spark.jobs.backfill.job import BackfillOptions, run_backfill
from plog.spark.jobs.local_folder import local_folder

_SLICE_SIZE: Final = 5_000_000


def configure(parser: argparse.ArgumentParser) -> None:
    """Write a time range of topics to Parquet tables, then the stream, without gap or overlap."""
    add_source_options(parser)
    for name, which, default in (
        ("--from", "start", "the first record"),
        ("--to", "end", "the last record when the job first starts"),
    ):
        parser.add_argument(
            name,
            dest=f"{name.lstrip('-')}_ms",
            type=_time_ms,
            metavar="TIME",
            help=f"{which} of the range, such as 2026-01-31T12:00, in UTC unless it has an offset"
            f" (default: {default})",
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


def _time_ms(text: str) -> int:
    # Imported here, because no other option needs the tools for groups.
    from plog.cli.consumer_groups.offset_reset import datetime_ms

    return datetime_ms(text)


def options_of(arguments: argparse.Namespace) -> BackfillOptions:
    """Return the options of the job. Raises ConfigError, UsageError or OSError."""
    return BackfillOptions(
        source=source_of(arguments),
        table=table_of(arguments),
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
