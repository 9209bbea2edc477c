"""``plog spark realtime``: count records in windows of time."""

from __future__ import annotations

import argparse
from typing import Final

from plog.cli.options import positive
from plog.cli.parser import add_examples
from plog.cli.spark.jobs.job_parser import JobCommand, source_of, trigger_of, values_of
from plog.cli.spark.jobs.window_parser import (
    add_event_options,
    add_text_options,
    add_topic_options,
)
from plog.spark.jobs.realtime.job import run_realtime
from plog.spark.jobs.realtime.realtime_options import RealtimeOptions


def configure(parser: argparse.ArgumentParser) -> None:
    """Count records in windows of time, and show the most frequent names in each window."""
    add_event_options(parser)
    add_text_options(
        parser,
        # The defaults are columns of the record, which need no decoding, so no schema either.
        ("--by", "topic", "NAME", "field, or column of the records, whose values are counted"),
        ("--time", "timestamp", "NAME", "field, or column of the records, with the time"),
        ("--window", "1 minute", "DURATION", "length of a window"),
        ("--watermark", "1 minute", "DURATION", "how late a record may be to be counted"),
    )
    parser.add_argument(
        "--slide",
        metavar="DURATION",
        help="time between the starts of two windows (default: the length of a window)",
    )
    parser.add_argument(
        "--top",
        type=positive,
        default=10,
        metavar="N",
        help="number of names in the result of a window (default: %(default)s)",
    )
    add_topic_options(parser)
    parser.add_argument("--quiet", action="store_true", help="do not print the results")
    add_examples(
        parser,
        (
            "count the pages of each minute",
            "plog spark realtime --bootstrap-server localhost:9092 --topic clicks --format json"
            " --schema 'page string' --by page --checkpoint checkpoints/realtime",
        ),
    )


def options_of(arguments: argparse.Namespace) -> RealtimeOptions:
    """Return the options of the job. Raises ConfigError, UsageError or OSError."""
    return RealtimeOptions(
        source=source_of(arguments),
        checkpoint=arguments.checkpoint,
        values=values_of(arguments),
        by=arguments.by,
        time=arguments.time,
        window=arguments.window,
        slide=arguments.slide,
        watermark=arguments.watermark,
        top=arguments.top,
        output_topic=arguments.output_topic,
        dead_letter_topic=arguments.dead_letter_topic,
        console=not arguments.quiet,
        trigger=trigger_of(arguments),
    )


COMMAND: Final = JobCommand(
    name="realtime", configure=configure, options=options_of, run=run_realtime
)
