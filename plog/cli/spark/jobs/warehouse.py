"""``plog spark warehouse``: write topics to Parquet tables."""

from __future__ import annotations

import argparse
from typing import Final

from plog.cli.options import not_negative, positive
from plog.cli.parser import add_examples
from plog.cli.spark.jobs.job_parser import (
    JobCommand,
    add_source_options,
    add_start_option,
    add_trigger_options,
    add_value_options,
    source_of,
    trigger_of,
    values_of,
)
from plog.spark.jobs.local_folder import local_folder
from plog.spark.jobs.warehouse.job import run_warehouse
from plog.spark.jobs.warehouse.merge_planning import MergeLimits
from plog.spark.jobs.warehouse.warehouse_options import TableOptions, WarehouseOptions

# Read from the job, so that both always have the same defaults.
_DEFAULTS: Final = MergeLimits()
_MIB: Final = 1 << 20


def configure(parser: argparse.ArgumentParser) -> None:
    """Write topics to Parquet tables by date and hour, each record exactly once."""
    add_source_options(parser)
    add_start_option(parser)
    add_trigger_options(parser, interval_s=60)
    add_table_options(parser)
    add_examples(
        parser,
        (
            "store what has arrived since the last run",
            "plog spark warehouse --bootstrap-server localhost:9092 --topic clicks --format json"
            " --output warehouse --checkpoint checkpoints/warehouse --available-now",
        ),
    )


def add_table_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a table, which other jobs write, too."""
    parser.add_argument(
        "--output",
        required=True,
        metavar="DIR",
        help="folder of the tables, on a disk that the driver and all executors share",
    )
    add_value_options(parser, infers=True)
    parser.add_argument(
        "--dead-letter-topic",
        metavar="TOPIC",
        help="topic for values that do not fit (default: the folder _dead_letters of the output)",
    )
    parser.add_argument(
        "--close-delay",
        type=not_negative,
        default=int(_DEFAULTS.close_delay_s),
        metavar="SECONDS",
        help="time after the end of an hour at which its files are merged (default: %(default)s)",
    )
    parser.add_argument(
        "--target-size",
        type=positive,
        default=_DEFAULTS.target_bytes // _MIB,
        metavar="MIB",
        help="size up to which files are merged, in MiB (default: %(default)s)",
    )


def table_of(arguments: argparse.Namespace) -> TableOptions:
    """Return the table of the job. Raises ConfigError or OSError."""
    return TableOptions(
        # Files are published by renaming them, which only local file systems do atomically.
        output=local_folder(arguments.output, "--output"),
        values=values_of(arguments, infers=True),
        dead_letter_topic=arguments.dead_letter_topic,
        merges=MergeLimits(
            close_delay_s=arguments.close_delay, target_bytes=arguments.target_size * _MIB
        ),
    )


def options_of(arguments: argparse.Namespace) -> WarehouseOptions:
    """Return the options of the job. Raises ConfigError, UsageError or OSError."""
    return WarehouseOptions(
        source=source_of(arguments),
        table=table_of(arguments),
        checkpoint=local_folder(arguments.checkpoint, "--checkpoint"),
        trigger=trigger_of(arguments),
    )


COMMAND: Final = JobCommand(
    name="warehouse", configure=configure, options=options_of, run=run_warehouse
)
