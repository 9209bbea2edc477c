"""The table of jobs, and the parser of each."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, Final

from plog.cli.parser import first_line
from plog.cli.spark.jobs import (
    audit,
    backfill,
    realtime,
    recommend,
    search_index,
    sessions,
    sql,
    warehouse,
)
from plog.cli.spark.jobs.job_parser import JobCommand, JobParser
from plog.error_base import PlogError

# The help lists the jobs in this order.
JOBS: Final[dict[str, JobCommand]] = {
    command.name: command
    for command in (
        warehouse.COMMAND,
        backfill.COMMAND,
        realtime.COMMAND,
        sessions.COMMAND,
        recommend.COMMAND,
        search_index.COMMAND,
        audit.COMMAND,
        sql.COMMAND,
    )
}


def configure_job(parser: argparse.ArgumentParser, job: JobCommand) -> None:
    """Give the parser of a job its options."""
    parser.description = first_line(job.configure.__doc__)
    job.configure(parser)


def job_options(parser: argparse.ArgumentParser, job: JobCommand, words: Sequence[str]) -> Any:
    """Return the options of a job from its command line; exit if they are wrong."""
    arguments = parser.parse_args(words)
    try:
        return job.options(arguments)
    # A wrong value exits like a wrong option, so that schedulers can tell it from a failed job.
    except (PlogError, OSError) as error:
        parser.error(str(error))


def job_parser(name: str) -> JobParser:
    """Return the parser of a job."""
    parser = JobParser(prog=f"plog spark {name}")
    configure_job(parser, JOBS[name])
    return parser
