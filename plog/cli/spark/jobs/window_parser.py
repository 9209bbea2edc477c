"""The options that jobs with windows of time have."""

from __future__ import annotations

import argparse

from plog.cli.spark.jobs.job_parser import (
    add_source_options,
    add_start_option,
    add_trigger_options,
    add_value_options,
)


def add_event_options(
    parser: argparse.ArgumentParser, *, interval_s: int = 10, needs_checkpoint: bool = True
) -> None:
    """Add the options that describe the stream of events and the batches."""
    add_source_options(parser)
    add_start_option(parser)
    add_trigger_options(parser, interval_s, needs_checkpoint=needs_checkpoint)
    # Spark needs the columns when it plans the query, before there is any record.
    add_value_options(parser, infers=False)


def add_text_options(
    parser: argparse.ArgumentParser, *rows: tuple[str, str | None, str, str]
) -> None:
    """Add an option for each name, default, metavar and help; the default is appended to it."""
    for name, default, metavar, text in rows:
        shown = text if default is None else f"{text} (default: %(default)s)"
        parser.add_argument(name, default=default, metavar=metavar, help=shown)


def add_topic_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the topics that a job writes."""
    parser.add_argument(
        "--output-topic", metavar="TOPIC", help="topic to which the results are written as JSON"
    )
    parser.add_argument(
        "--dead-letter-topic", metavar="TOPIC", help="topic for values that cannot be decoded"
    )
