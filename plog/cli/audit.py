"""``plog audit``: compare the records of topics with the reports of producers, without Spark.

The options and the output are the same as those of ``plog spark audit``. As with diff, the exit
code is 0 if nothing was found, 1 if something was found, and 2 if the audit failed.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Final

from plog.cli.main import describe
from plog.cli.options import (
    add_bootstrap_option,
    add_command_config_option,
    add_json_option,
    comma_list,
    not_negative,
    read_properties,
)
from plog.cli.output import print_json, progress
from plog.cli.parser import Parser, add_examples, fail
from plog.cli.time_range import add_time_range_options
from plog.error_base import PlogError

if TYPE_CHECKING:
    from plog.audit.result import AuditResult
    from plog.client.audit.audit_options import AuditOptions

FOUND: Final = 1
AUDIT_FAILED: Final = 2
_GRACE_S: Final = 120  # The same as in audit_options.py, whose import takes long.


def configure(parser: argparse.ArgumentParser) -> None:
    """Find records that were lost or repeated, with the counts that producers have reported."""
    if isinstance(parser, Parser):
        # Exit code 1 is taken: it means that the audit has found something.
        parser.usage_error = AUDIT_FAILED
    add_audit_options(parser)
    add_examples(
        parser,
        (
            "audit all topics about which producers have reported",
            "plog audit --bootstrap-server localhost:9092",
        ),
        (
            "audit one day of a topic",
            "plog audit --bootstrap-server localhost:9092 --topic clicks --from 2026-01-31"
            " --to 2026-02-01",
        ),
    )
    parser.set_defaults(run=run)


def add_audit_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of an audit."""
    add_bootstrap_option(parser)
    add_command_config_option(parser)
    topics = parser.add_mutually_exclusive_group()
    topics.add_argument(
        "--topic",
        type=comma_list,
        default=[],
        metavar="TOPIC[,TOPIC]",
        help="topics to audit (default: all topics about which producers have reported)",
    )
    topics.add_argument(
        "--include", metavar="REGEX", help="audit all topics whose names contain a match"
    )
    add_time_range_options(
        parser,
        "only time windows that contain this time or start after it",
        "only time windows that start before this time",
    )
    parser.add_argument(
        "--grace",
        type=not_negative,
        default=_GRACE_S,
        metavar="SECONDS",
        help="time after the end of a window in which producers may still report its records"
        " (default: %(default)s)",
    )
    parser.add_argument(
        "--audited-only", action="store_true", help="ignore records of producers without audit"
    )
    add_json_option(parser)


def audit_options_of(arguments: argparse.Namespace) -> AuditOptions:
    """Return the options of an audit. Raises ConfigError."""
    from plog.client.audit.audit_options import AuditOptions

    return AuditOptions(
        topics=tuple(arguments.topic),
        pattern=arguments.include,
        since_ms=arguments.from_ms,
        before_ms=arguments.to_ms,
        grace_ms=arguments.grace * 1000,
        audited_only=arguments.audited_only,
    )


def client_settings(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the settings of the client. Raises OSError or UsageError."""
    # As in Kafka's tools, --bootstrap-server overrides the servers in the file.
    config = arguments.command_config
    settings = {} if config is None else read_properties(config)
    return {**settings, "bootstrap.servers": arguments.bootstrap_servers}


def run(arguments: argparse.Namespace) -> int:
    """Audit and print the result; return the exit code."""
    try:
        result = audit(arguments)
    # It is an OSError, but no failure of the audit; `main` handles it.
    except BrokenPipeError:
        raise
    except (PlogError, OSError) as error:
        for line in describe(error).splitlines():
            fail(line)
        return AUDIT_FAILED
    return print_result(result, as_json=arguments.json)


def audit(arguments: argparse.Namespace) -> AuditResult:
    """Read reports and topics. Raises PlogError or OSError."""
    import time

    # Imported here, because help and completion do not need the client, which is slow to import.
    from plog.audit.counts import AuditCounts
    from plog.client.audit.audit_run import Ranges, run_audit
    from plog.client.audit.record_counts import count_records
    from plog.client.topic_reader import TopicReader

    options = audit_options_of(arguments)
    with TopicReader(client_settings(arguments)) as cluster:

        def count(ranges: Ranges) -> AuditCounts:
            # This is an upper bound: compaction and control records leave gaps between offsets.
            total = sum(end - start for start, end in ranges.values())
            with progress(total, "records") as advance:
                return count_records(cluster, ranges, advance)

        return run_audit(cluster, options, count, now_ms=int(time.time() * 1000))


def print_result(result: AuditResult, *, as_json: bool) -> int:
    """Print the result of an audit and return the exit code."""
    from plog.audit.result_text import result_data, result_lines

    if as_json:
        print_json(result_data(result))
    else:
        for line in result_lines(result):
            print(line)
    sys.stdout.flush()
    return FOUND if result.problems else 0
