"""``plog spark pack``: write the archive of packages that executors need."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from plog.cli.options import UsageError
from plog.cli.parser import add_examples
from plog.cli.spark.archive import SUFFIXES, ArchiveInfo, write_archive
from plog.version import VERSION

_MIB: Final = 1 << 20


def configure(parser: argparse.ArgumentParser) -> None:
    """Pack plog and the packages that it needs into an archive for executors."""
    parser.add_argument("archive", type=Path, metavar="FILE.tar.gz", help="archive to write")
    parser.add_argument(
        "--add",
        action="append",
        default=[],
        metavar="PACKAGE",
        help="another installed package that the job needs, with its requirements; may be repeated",
    )
    add_examples(
        parser,
        ("pack for the Python that runs plog", "plog spark pack environment.tar.gz"),
        ("also pack what a job imports", "plog spark pack environment.tar.gz --add scikit-learn"),
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Write the archive and print what to do with it."""
    path: Path = arguments.archive
    if not path.name.endswith(SUFFIXES):
        raise UsageError(f"cannot write {path}: Spark unpacks only names that end with .tar.gz")
    # Imported here, because jobs do not need it.
    from plog.cli.spark.packed_files import packed_files

    # The folder of the running plog, which may be a working tree.
    write_archive(path, packed_files(Path(__file__).parents[2], arguments.add), this_python())
    size = path.stat().st_size / _MIB
    print(f"Wrote {path} ({size:.0f} MiB); use it with --archives {path}#environment")
    return 0


def this_python() -> ArchiveInfo:
    """Return what an archive for the running Python is made for."""
    # Compiled packages work with all patch releases of a minor version of Python.
    return ArchiveInfo(plog=VERSION, python=f"{sys.version_info.major}.{sys.version_info.minor}")
