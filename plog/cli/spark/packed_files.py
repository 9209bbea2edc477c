"""The files of ``plog spark pack``: plog and the packages that its tasks import.

They are copied from the running Python, so that executors have exactly the versions of the driver,
compiled code included, and no package is downloaded (docs/decisions/0016).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path, PurePosixPath
from typing import Final

from plog.error_base import PlogError

NEEDED: Final = (
    "Twisted",
    "crc32c",
    "lz4",
    "pandas",
    "pyarrow",
    "python-snappy",
    "zope.interface",
    "zstandard",
)
"""What the tasks of plog's data source import. pyspark is part of the executors' Spark."""
# Only jobs that decode Avro values import it.
IF_INSTALLED: Final = ("fastavro",)
# Never imported by a job, and a third of the size.
_LEFT_OUT_FOLDERS: Final = {"__pycache__", "include", "tests"}
_LEFT_OUT_SUFFIXES: Final = {".a", ".h", ".hpp", ".pyc", ".pyi"}
_CODE_SUFFIXES: Final = {".py", ".so"}

FindDistribution = Callable[[str], Distribution]


class PackError(PlogError):
    """A package cannot be packed; the message contains a remedy."""


def packed_files(
    plog_folder: Path, others: Iterable[str] = (), find: FindDistribution = Distribution.from_name
) -> dict[str, Path]:
    """Return the file for each name in the archive.

    `others` are further packages to add. Raises PackError.
    """
    files = dict(_plog_files(plog_folder))
    for distribution in distributions([*NEEDED, *others], IF_INSTALLED, find):
        files |= distribution_files(distribution)
    return files


def _plog_files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield plog's own files, which may be links to a working tree."""
    for file in folder.rglob("*"):
        name = PurePosixPath("plog", file.relative_to(folder).as_posix())
        # Keep .pxd: the compiled codec is found by a checksum of them (plog/compiled.py).
        if file.is_file() and _is_wanted(name):
            yield str(name), file
    yield "pyspark_plog.py", folder.with_name("pyspark_plog.py")


def distributions(
    needed: Iterable[str], optional: Iterable[str], find: FindDistribution
) -> list[Distribution]:
    """Return the distributions and all that they require, by name. Raises PackError.

    Markers of requirements are not evaluated: a requirement for another platform is not installed,
    and a superfluous package does no harm.
    """
    found: dict[str, Distribution] = {}
    pending = [*((name, True) for name in needed), *((name, False) for name in optional)]
    while pending:
        name, is_needed = pending.pop()
        key = _normalized(name)
        if key in found:
            continue
        try:
            found[key] = find(name)
        except PackageNotFoundError:
            if is_needed:
                raise PackError(
                    f"cannot pack {name}: it is not installed; run pip install {name}"
                ) from None
            continue
        for requirement in found[key].requires or ():
            text, _, marker = requirement.partition(";")
            # pip installs the requirements of an extra only if the user asks for them.
            if "extra" not in marker:
                pending.append((_name_in(text), not marker))
    return [found[key] for key in sorted(found)]


def distribution_files(distribution: Distribution) -> Mapping[str, Path]:
    """Return the files of a distribution, without scripts and tests. Raises PackError."""
    name = distribution.metadata["Name"]
    files = {
        str(file): Path(str(distribution.locate_file(file)))
        for file in distribution.files or ()
        # Scripts are outside of the folder for packages.
        if ".." not in file.parts and _is_wanted(file)
    }
    existing = {name: file for name, file in files.items() if file.is_file()}
    # Debian's packages have no list of files (docs/decisions/0016).
    if not any(Path(file).suffix in _CODE_SUFFIXES for file in existing):
        raise PackError(
            f"cannot pack {name}: the list of its files is missing or incomplete; install it with"
            " pip in a virtual environment"
        )
    return existing


def _is_wanted(name: PurePosixPath | os.PathLike[str]) -> bool:
    path = PurePosixPath(name)
    return not _LEFT_OUT_FOLDERS & set(path.parts) and path.suffix not in _LEFT_OUT_SUFFIXES


def _name_in(requirement: str) -> str:
    found = re.match(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)", requirement)
    return "" if found is None else found[1]


def _normalized(name: str) -> str:
    # PEP 503 treats these characters as equal.
    return re.sub(r"[-_.]+", "-", name).lower()
