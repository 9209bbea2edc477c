"""The Python packages that a Spark job needs, and the versions that plog supports.

The versions repeat the extra ``spark`` of setup.cfg, because they also have to be checked if the
packages were installed without it.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, NamedTuple

from plog.error_base import PlogError

REMEDY: Final = "run pip install 'plog[spark]'"


class PackageError(PlogError):
    """A package is missing or has an unsupported version; the message contains a remedy."""


class Bounds(NamedTuple):
    """The versions of a package that are supported: from `at_least`, below `below`."""

    at_least: tuple[int, ...]
    below: tuple[int, ...] | None = None

    def __str__(self) -> str:
        text = f">= {'.'.join(map(str, self.at_least))}"
        return text if self.below is None else f"{text}, < {'.'.join(map(str, self.below))}"


NEEDED: Final = {
    # Spark 4 does not support pandas 3.
    "pandas": Bounds((2, 2), (3,)),
    "pyarrow": Bounds((18,)),
    "pyspark": Bounds((4, 2), (5,)),
}


def check_packages(find_version: Callable[[str], str] = version) -> None:
    """Check all packages. Raises PackageError for the first one that is missing or unsupported."""
    for name, bounds in NEEDED.items():
        try:
            found = find_version(name)
        except PackageNotFoundError:
            raise PackageError(f"cannot run Spark: {name} is missing; {REMEDY}") from None
        # Suffixes are ignored: a release candidate of an excluded version is excluded, too.
        numbers = release(found)
        if numbers < bounds.at_least or (bounds.below is not None and numbers >= bounds.below):
            raise PackageError(
                f"cannot run Spark: {name} {found} is not supported, because plog needs {bounds};"
                f" {REMEDY}"
            )


def release(text: str) -> tuple[int, ...]:
    """Return the numbers of a version.

    >>> release("4.2.1"), release("3.0.0rc1"), release("26.0.1.dev3+g1")
    ((4, 2, 1), (3, 0, 0), (26, 0, 1))
    """
    found = re.match(r"\d+(\.\d+)*", text)
    return () if found is None else tuple(map(int, found[0].split(".")))


def spark_home() -> Path:
    """Return the folder of pyspark, which contains all of Spark. Raises PackageError."""
    # find_spec() does not import pyspark, which would delay the start of the job.
    found = importlib.util.find_spec("pyspark")
    if found is None or not found.submodule_search_locations:
        raise PackageError(f"cannot run Spark: pyspark is missing; {REMEDY}")
    return Path(found.submodule_search_locations[0])
