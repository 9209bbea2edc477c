"""The entry of ``plog spark``: check what a job needs, then become the job.

The job replaces the command's process: signals, standard streams and the exit code are the job's
own. pyspark starts the JVM, ignores Ctrl-C there, and ends it when the job's process ends. A job is
a file, or one of plog's own (`plog.cli.spark.jobs`), which job_process.py runs.
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
    needs_archive,
)
from plog.cli.spark.jobs.job_parser import JOB_USAGE_ERROR, JobParser
from plog.cli.spark.jobs.job_table import JOBS, configure_job, job_options, job_parser
from plog.cli.spark.linked_home import linked_home

_SUBCOMMANDS: Final = {"pack": pack.configure}
_JOB_PROCESS: Final = "plog.cli.spark.job_process"


def configure(parser: argparse.ArgumentParser) -> None:
    """Run a Spark job that reads or writes topics, or pack what its executors need."""
    parser.usage = "%(prog)s [OPTION]... JOB|FILE.py [ARGUMENT]..."
    parser.add_argument(
        "--master",
        metavar="URL",
        help="cluster to run on (default: Spark's own setting, or local[*], this machine)",
    )
    parser.add_argument("--name", help="name of the application (default: that of the job)")
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
        metavar="JOB|FILE.py [ARGUMENT]...",
        required=True,
        help="job below, or Python file that creates a SparkSession, and its arguments",
    )
    assert isinstance(jobs, JobAction)
    for job in JOBS.values():
        configure_job(
            jobs.add_job(job.name, JobParser, help=first_line(job.configure.__doc__)), job
        )
    for name, configure_tool in _SUBCOMMANDS.items():
        summary = first_line(configure_tool.__doc__)
        configure_tool(jobs.add_parser(name, help=summary, description=summary))
    add_examples(
        parser,
        ("show the options of a job", "plog spark warehouse --help"),
        ("run a job on this machine", "plog spark count_orders.py --topic orders"),
        (
            "run a job on a cluster whose hosts have no packages",
            "plog spark --master spark://master:7077 --archives environment.tar.gz#environment"
            " count_orders.py",
        ),
    )
    parser.set_defaults(run=run, job=None)


def run(arguments: argparse.Namespace) -> int:
    """Check everything that can be checked before Spark starts, and run the job."""
    if arguments.job is not None:
        # The job's process reads them again; here, errors are found before Spark starts.
        job_options(arguments.job, JOBS[arguments.file], arguments.arguments)
    elif (near := misspelled(arguments.file)) is not None:
        fail(f"cannot run {arguments.file}: there is no such job or file; did you mean {near}?")
        # A wrong command line of a job has this code, whether its name or its options are wrong.
        return JOB_USAGE_ERROR
    job = Job(
        file=Path(arguments.file),
        master=arguments.master,
        name=arguments.name,
        conf=check_conf(arguments.conf),
        archives=arguments.archives,
    )
    python = Python(path=sys.executable, version=pack.this_python().python)
    if arguments.job is None:
        check_file(job.file)
    check_archives(job, python)
    check_packages()
    java = find_java(os.environ)
    # This starts a JVM, so it comes after all checks of files.
    warning = check_version(java_version(java), java)
    if warning is not None:
        fail(warning)
    home = spark_home()
    if not needs_archive(job, os.environ):
        # The Python processes on this host start faster without the archive of pyspark.
        home = linked_home(home, os.environ)
    environment = job_environment(job, python, home, os.environ)
    program = [arguments.file] if arguments.job is None else ["-m", _JOB_PROCESS, arguments.file]
    return become([python.path, *program, *arguments.arguments], environment)


def run_job(name: str, words: Sequence[str]) -> int:
    """Run one of plog's own jobs on this machine, with Spark's own settings."""
    return run(
        argparse.Namespace(
            # The parser of `plog sql` has no options of Spark, so these are Spark's defaults.
            file=name,
            arguments=words,
            job=job_parser(name),
            master=None,
            name=None,
            conf=[],
            archives=[],
        )
    )


def become(command: Sequence[str], environment: dict[str, str]) -> NoReturn:
    """Replace this process. Raises OSError."""
    # execve() discards what is still in Python's buffers.
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(command[0], list(command), environment)


def misspelled(name: str) -> str | None:
    """Return the job or subcommand that a name resembles which is not a file, or None."""
    if Path(name).exists():
        return None
    # A name that resembles no job is treated as a file, so that the error names the missing file.
    near = difflib.get_close_matches(name, [*JOBS, *_SUBCOMMANDS], n=1)
    return near[0] if near else None


def check_file(file: Path) -> None:
    """Check that a job exists. Raises UsageError."""
    if not file.is_file():
        reason = "it is a folder" if file.is_dir() else "there is no such file"
        raise UsageError(f"cannot run {file}: {reason}")


def check_archives(job: Job, python: Python) -> None:
    """Check the archives on this host. Raises UsageError, ArchiveError or OSError."""
    for archive in job.archives:
        file, name = local_file(archive), name_of(archive)
        if not name:
            raise UsageError(
                f"--archives {archive} has no name: append #NAME, such as #{PACKED} for an archive"
                " of plog spark pack"
            )
        # An archive on another host, such as hdfs://, cannot be checked here: the workers check
        # themselves (docs/decisions/0016).
        if file is not None and name == PACKED:
            check_info(file, read_info(file), pack.this_python())
        elif file is not None and not file.is_file():
            raise UsageError(f"cannot use {file}: there is no such file")
    if job.is_packed:
        programs = Path(python.path).parent
        # Spark starts the workers on this host by this name, too, and finds it in PATH
        # (docs/decisions/0016).
        if not (programs / python.versioned_name).exists():
            raise UsageError(
                f"cannot run on executors with another Python: {programs} has no"
                f" {python.versioned_name}; create the environment with python -m venv"
            )
