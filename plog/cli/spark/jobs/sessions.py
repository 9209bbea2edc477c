"""``plog spark sessions``: write a row for each session of a user."""

from __future__ import annotations

import argparse
from typing import Final

from plog.cli.options import not_negative
from plog.cli.parser import add_examples
from plog.cli.spark.jobs.job_parser import JobCommand, source_of, trigger_of, values_of
from plog.cli.spark.jobs.window_parser import (
    add_event_options,
    add_text_options,
    add_topic_options,
)
from plog.spark.jobs.sessions.job import run_sessions
from plog.spark.jobs.sessions.sessions_options import SessionsOptions


def configure(parser: argparse.ArgumentParser) -> None:
    """Write a row for each session: records of a user without a long pause between them."""
    add_event_options(parser)
    add_text_options(
        parser,
        # The defaults are columns of the record, which need no decoding, so no schema either.
        ("--by", "key", "NAME", "field, or column of the records, that identifies the user"),
        ("--time", "timestamp", "NAME", "field, or column of the records, with the time"),
        ("--gap", "30 minutes", "DURATION", "pause after which a session has ended"),
        ("--watermark", "10 minutes", "DURATION", "how late a record may be to be counted"),
        (
            "--page",
            None,
            "NAME",
            "field, or column of the records, whose first and last values are part of a row"
            " (default: none)",
        ),
    )
    add_topic_options(parser)
    parser.add_argument(
        "--show",
        type=not_negative,
        default=20,
        metavar="N",
        help="maximum number of sessions of a batch that are printed (default: %(default)s)",
    )
    add_examples(
        parser,
        (
            "write the sessions of users to a topic",
            "plog spark sessions --bootstrap-server localhost:9092 --topic clicks --format json"
            " --schema 'user string, page string' --by user --page page --output-topic sessions"
            " --checkpoint checkpoints/sessions",
        ),
    )


def options_of(arguments: argparse.Namespace) -> SessionsOptions:
    """Return the options of the job. Raises ConfigError, UsageError or OSError."""
    return SessionsOptions(
        source=source_of(arguments),
        checkpoint=arguments.checkpoint,
        values=values_of(arguments),
        by=arguments.by,
        time=arguments.time,
        page=arguments.page,
        gap=arguments.gap,
        watermark=arguments.watermark,
        output_topic=arguments.output_topic,
        dead_letter_topic=arguments.dead_letter_topic,
        shown=arguments.show,
        trigger=trigger_of(arguments),
    )


COMMAND: Final = JobCommand(
    name="sessions", configure=configure, options=options_of, run=run_sessions
)
