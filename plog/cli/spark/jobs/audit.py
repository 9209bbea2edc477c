"""``plog spark audit``: compare the records of topics with the reports of producers."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from plog.cli.audit import (
    AUDIT_FAILED,
    add_audit_options,
    audit_options_of,
    client_settings,
    print_result,
)
from plog.cli.parser import add_examples
from plog.cli.spark.jobs.job_parser import JobCommand

if TYPE_CHECKING:
    from plog.spark.jobs.audit.job import AuditJobOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditCommandOptions:
    """The options of the job, and the form of its output."""

    job: AuditJobOptions
    as_json: bool = False


def configure(parser: argparse.ArgumentParser) -> None:
    """Find records that were lost or repeated, with the counts that producers have reported."""
    add_audit_options(parser)
    add_examples(
        parser,
        (
            "audit all topics about which producers have reported",
            "plog spark audit --bootstrap-server localhost:9092",
        ),
        (
            "audit one day of a topic",
            "plog spark audit --bootstrap-server localhost:9092 --topic clicks --from 2026-01-31"
            " --to 2026-02-01",
        ),
    )


def options_of(arguments: argparse.Namespace) -> AuditCommandOptions:
    """Return the options of the job. Raises ConfigError, UsageError or OSError."""
    # Imported here, because the client is slow to import, and help does not need it.
    from plog.spark.jobs.audit.job import AuditJobOptions

    return AuditCommandOptions(
        job=AuditJobOptions(client=client_settings(arguments), audit=audit_options_of(arguments)),
        as_json=arguments.json,
    )


def run(spark: Any, options: AuditCommandOptions) -> int:
    """Audit in a session and print the result; return the exit code."""
    from plog.spark.jobs.audit.job import run_audit_job

    return print_result(run_audit_job(spark, options.job), as_json=options.as_json)


# The exit codes are those of `plog audit`, so that a script can use either command.
COMMAND: Final = JobCommand(
    name="audit", configure=configure, options=options_of, run=run, failed=AUDIT_FAILED
)
