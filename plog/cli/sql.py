"""``plog sql``: the same as ``plog spark sql``, on this machine."""

from __future__ import annotations

import argparse

from plog.cli.parser import Parser
from plog.cli.spark.jobs.job_parser import JOB_USAGE_ERROR
from plog.cli.spark.jobs.sql import add_sql_examples, add_sql_options


def configure(parser: argparse.ArgumentParser) -> None:
    """Run a SQL query whose tables are topics, with Spark, and print the result."""
    if isinstance(parser, Parser):
        parser.usage_error = JOB_USAGE_ERROR
    add_sql_options(parser)
    add_sql_examples(parser, "plog sql")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Become the process of the job."""
    # Imported here, because help does not need it.
    from plog.cli.spark.command import run_job

    return run_job("sql", arguments.command_line)
