"""``plog spark sql``: run a query whose tables are topics."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any, Final

from plog.cli.audit import client_settings
from plog.cli.options import add_bootstrap_option, add_command_config_option, not_negative
from plog.cli.parser import add_examples
from plog.cli.spark.jobs.job_parser import JobCommand
from plog.cli.spark.jobs.query_rows import PRINTERS, print_result
from plog.cli.time_range import add_time_range_options
from plog.settings import ConfigError, nearest_name
from plog.spark.jobs.sql.sql_options import SAMPLE_SIZE, SqlOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlCommandOptions:
    """The options of the job, and the format of its output."""

    job: SqlOptions
    output_format: str = "table"

    def __post_init__(self) -> None:
        # Not an argparse choice, whose error would not name the nearest format.
        if self.output_format not in PRINTERS:
            near = nearest_name(self.output_format, PRINTERS)
            hint = f"did you mean {near}?" if near else f"use one of {', '.join(PRINTERS)}"
            raise ConfigError([f"cannot print the format {self.output_format!r}: {hint}"])


def configure(parser: argparse.ArgumentParser) -> None:
    """Run a SQL query whose tables are topics, with Spark, and print the result."""
    add_sql_options(parser)
    add_sql_examples(parser, "plog spark sql")


def add_sql_options(parser: argparse.ArgumentParser) -> None:
    """Add the query and its options."""
    parser.add_argument("query", metavar="QUERY", help="query, such as 'select * from clicks'")
    add_bootstrap_option(parser)
    add_command_config_option(parser)
    parser.add_argument(
        "--format",
        default="table",
        metavar="FORMAT",
        help=f"format of the output: {', '.join(PRINTERS)} (default: %(default)s)",
    )
    add_time_range_options(
        parser,
        "only records with this timestamp or a later one",
        "only records with an earlier timestamp",
    )
    parser.add_argument(
        "--sample",
        type=not_negative,
        default=SAMPLE_SIZE,
        metavar="N",
        help="number of the newest records of each partition in which the columns of JSON values"
        " are found; 0 shows values as text (default: %(default)s)",
    )


def add_sql_examples(parser: argparse.ArgumentParser, command: str) -> None:
    """Add examples for the `command`, which may be that of the job."""
    query = "'select page, count(*) from clicks group by page order by 2 desc'"
    server = "--bootstrap-server localhost:9092"
    add_examples(
        parser,
        (
            "count the records of each page since a date",
            f"{command} {server} --from 2026-01-31 {query}",
        ),
        ("show the columns of a topic", f"{command} {server} 'describe clicks'"),
    )


def options_of(arguments: argparse.Namespace) -> SqlCommandOptions:
    """Return the options of the job. Raises ConfigError, UsageError or OSError."""
    return SqlCommandOptions(
        job=SqlOptions(
            client=client_settings(arguments),
            query=arguments.query,
            since_ms=arguments.from_ms,
            before_ms=arguments.to_ms,
            sample_size=arguments.sample,
        ),
        output_format=arguments.format,
    )


def run(spark: Any, options: SqlCommandOptions) -> None:
    """Run the query in a session and print the result."""
    # Imported here, because the client is slow to import, and help does not need it.
    from plog.spark.jobs.sql.job import run_sql

    print_result(run_sql(spark, options.job), options.output_format)


COMMAND: Final = JobCommand(name="sql", configure=configure, options=options_of, run=run)
