"""The parser of a job's command line, and the options that several jobs have."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from plog.cli.options import (
    add_bootstrap_option,
    add_command_config_option,
    add_property_option,
    comma_list,
    key_value,
    positive,
    read_properties,
)
from plog.cli.parser import Parser
from plog.settings import ConfigError
from plog.spark.jobs.job_source import EARLIEST_OFFSETS, JobSource, JobTrigger
from plog.spark.jobs.value_format import FORMATS, RAW, ValueFormat

JOB_USAGE_ERROR: Final = 2
"""The exit code for a wrong command line of a job; a job that fails exits with 1."""


class JobParser(Parser):
    """The parser of a job. Its errors exit with another code than a job that has failed."""

    usage_error = JOB_USAGE_ERROR

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse a command line, and report a misspelled option rather than one that is missing."""
        known = {name for action in self._actions for name in action.option_strings}
        # Everything after two hyphens is an argument, not an option.
        for word in itertools.takewhile(lambda word: word != "--", args or ()):
            option = word.partition("=")[0]
            if option.startswith("--") and option not in known:
                # argparse checks required options first, so it would report `--topics` as a missing
                # --topic.
                self.error(f"unrecognized arguments: {option}")
        return super().parse_args(args, namespace)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCommand:
    """A job of ``plog spark``: its options, and the function that runs it in a session."""

    name: str
    configure: Callable[[argparse.ArgumentParser], None]
    options: Callable[[argparse.Namespace], Any]
    """Returns the options of the job. Raises ConfigError, UsageError or OSError."""
    run: Callable[[Any, Any], int | None]
    """Runs the job with a session and its options; returns the exit code, or None for 0."""
    failed: int = 1
    """The exit code if the job fails."""


def add_source_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose topics and their cluster."""
    add_bootstrap_option(parser)
    add_command_config_option(parser)
    topics = parser.add_mutually_exclusive_group(required=True)
    topics.add_argument(
        "--topic", type=comma_list, default=[], metavar="TOPIC[,TOPIC]", help="topics to read"
    )
    topics.add_argument(
        "--include", metavar="REGEX", help="read all topics whose names contain a match"
    )
    parser.add_argument(
        "--max-offsets-per-trigger",
        type=positive,
        metavar="N",
        help="maximum number of records in a batch (default: all that are available)",
    )
    parser.add_argument(
        "--ignore-data-loss",
        action="store_true",
        help="continue if retention has deleted records that were not read (default: fail)",
    )


def add_start_option(parser: argparse.ArgumentParser) -> None:
    """Add the option that sets where a new query starts."""
    parser.add_argument(
        "--starting-offsets",
        default=EARLIEST_OFFSETS,
        metavar="OFFSETS",
        help="where a new query starts: earliest, latest, or offsets as JSON (default:"
        " %(default)s); a query that has a checkpoint continues there",
    )


def source_of(arguments: argparse.Namespace) -> JobSource:
    """Return what the job reads. Raises ConfigError, UsageError or OSError."""
    config = arguments.command_config
    return JobSource(
        bootstrap_servers=arguments.bootstrap_servers,
        topics=tuple(arguments.topic),
        pattern=arguments.include,
        client={} if config is None else read_properties(config),
        # The job backfill has no such option: its range determines where it starts.
        starting_offsets=getattr(arguments, "starting_offsets", EARLIEST_OFFSETS),
        max_offsets_per_trigger=arguments.max_offsets_per_trigger,
        fail_on_data_loss=not arguments.ignore_data_loss,
    )


def add_trigger_options(
    parser: argparse.ArgumentParser, interval_s: int, *, needs_checkpoint: bool = True
) -> None:
    """Add the options that say when batches start, and the checkpoint.

    A job that does not need a checkpoint can read a range of times instead of a stream.
    """
    otherwise = "" if needs_checkpoint else "; without it, the job reads a range of times"
    parser.add_argument(
        "--checkpoint",
        required=needs_checkpoint,
        metavar="DIR",
        help=f"folder in which Spark stores the position of the query{otherwise}",
    )
    # A job that ends after the available records does not wait for another batch.
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument(
        "--interval",
        type=positive,
        default=interval_s,
        metavar="SECONDS",
        help="time between the starts of two batches (default: %(default)s)",
    )
    choice.add_argument(
        "--available-now",
        action="store_true",
        help="end when all records that are available have been read (default: run until stopped)",
    )


def trigger_of(arguments: argparse.Namespace) -> JobTrigger:
    """Return when the job starts batches."""
    return JobTrigger(available_now=arguments.available_now, interval_s=arguments.interval)


def add_value_options(parser: argparse.ArgumentParser, *, infers: bool, default: str = RAW) -> None:
    """Add the options that describe values; a job `infers` columns if it can find them."""
    parser.add_argument(
        "--format",
        default=default,
        metavar="FORMAT",
        help=f"format of the values: {', '.join(FORMATS)} (default: %(default)s)",
    )
    found = "; without it, the columns of JSON values are found in the data" if infers else ""
    schema = parser.add_mutually_exclusive_group()
    schema.add_argument(
        "--schema",
        metavar="DDL",
        help=f"columns of the values, such as 'id bigint, name string'{found}",
    )
    schema.add_argument(
        "--schema-file", metavar="FILE", help="file with the columns, or with the Avro schema"
    )
    add_property_option(
        parser,
        "--format-option",
        dest="format_options",
        description="option of Spark's parser for JSON or CSV, such as sep=;",
        read=key_value,
    )


def values_of(arguments: argparse.Namespace, *, infers: bool = False) -> ValueFormat:
    """Return the format of values. Raises ConfigError or OSError."""
    schema = arguments.schema
    if arguments.schema_file is not None:
        schema = Path(arguments.schema_file).read_text("utf-8").strip()
    made = ValueFormat(name=arguments.format, schema=schema, options=dict(arguments.format_options))
    # Spark plans the query of such a job before the first record, so the columns must be known.
    if made.is_inferred and not infers:
        raise ConfigError(["cannot read values in the format json: set --schema"])
    return made
