"""The entry of ``plog spark``: check what a job needs, then become the job.

The job replaces the command's process: signals, standard streams and the exit code are the job's
own. pyspark starts the JVM, ignores Ctrl-C there, and ends it when the job's process ends.
"""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn

from plog.cli.options import UsageError, add_property_option, comma_list, key_value
from plog.cli.parser import add_examples, fail, first_line
from plog.cli.spark import pack
from plog.cli.spark.archive import check_info, read_info
from plog.cli.spark.installed_java import check_version, find_java, java_version
from plog.cli.spark.installed_packages import check_packages, spark_home
from plog.cli.spark.job_action import JobAction
from plog.cli.spark.job_environment import (
    PACKED,
    Job,
    Python,
    check_conf,
    job_environment,
    local_file,
    name_of,
)

_SUBCOMMANDS: Final = {"pack": pack.configure}


def configure(parser: argparse.ArgumentParser) -> None:
    """Run a Spark job that reads or writes topics, or pack what its executors need."""
    parser.usage = "%(prog)s [OPTION]... FILE.py [ARGUMENT]..."
    parser.add_argument(
        "--master",
        metavar="URL",
        help="cluster to run on (default: Spark's own setting, or local[*], this machine)",
    )
    parser.add_argument("--name", help="name of the application (default: that of the file)")
    add_property_option(
        parser, "--conf", dest="conf", description="setting of Spark", read=key_value
    )
    parser.add_argument(
        "--archives",
        type=comma_list,
        default=[],
        metavar="FILE#NAME[,FILE#NAME]",
        help="archives that executors unpack into folders of these names; the name environment is"
        " for an archive of 'plog spark pack'",
    )
    jobs = parser.add_subparsers(
        action=JobAction,
        prog=parser.prog,
        title="job",
        metavar="FILE.py [ARGUMENT]...",
        required=True,
        help="Python file that creates a SparkSession, and its arguments",
    )
    for name, configure_tool in _SUBCOMMANDS.items():
        summary = first_line(configure_tool.__doc__)
        configure_tool(jobs.add_parser(name, help=summary, description=summary))
    add_examples(
        parser,
        ("run a job on this machine", "plog spark count_orders.py --topic orders"),
        (
            "run a job on a cluster whose hosts have no packages",
            "plog spark --master spark://master:7077 --archives environment.tar.gz#environment"
            " count_orders.py",
        ),
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Check everything that can be checked before Spark starts, and run the job."""
    job = Job(
        file=Path(arguments.file),
        master=arguments.master,
        name=arguments.name,
        conf=check_conf(arguments.conf),
        archives=arguments.archives,
    )
    python = Python(path=sys.executable, version=pack.this_python().python)
    check_file(job.file)
    check_archives(job, python)
    check_packages()
    java = find_java(os.environ)
    warning = check_version(java_version(java), java)
    if warning is not None:
        fail(warning)
    environment = job_environment(job, python, spark_home(), os.environ)
    return become([python.path, arguments.file, *arguments.arguments], environment)


def become(command: Sequence[str], environment: dict[str, str]) -> NoReturn:
    """Replace this process. Raises OSError."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(command[0], list(command), environment)


def check_file(file: Path) -> None:
    """Check that a job exists. Raises UsageError."""
    if file.is_file():
        return
    reason = "it is a folder" if file.is_dir() else "there is no such file"
    near = difflib.get_close_matches(str(file), _SUBCOMMANDS, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise UsageError(f"cannot run {file}: {reason}{hint}")


def check_archives(job: Job, python: Python) -> None:
    """Check the archives on this host. Raises UsageError, ArchiveError or OSError."""
    for archive in job.archives:
        file, name = local_file(archive), name_of(archive)
        if not name:
            raise UsageError(
                f"--archives {archive} has no name: append #NAME, such as #{PACKED} for an archive"
                " of plog spark pack"
            )
        if file is not None and name == PACKED:
            check_info(file, read_info(file), pack.this_python())
        elif file is not None and not file.is_file():
            raise UsageError(f"cannot use {file}: there is no such file")
    if job.is_packed:
        programs = Path(python.path).parent
        if not (programs / python.versioned_name).exists():
            raise UsageError(
                f"cannot run on executors with another Python: {programs} has no"
                f" {python.versioned_name}; create the environment with python -m venv"
            )
