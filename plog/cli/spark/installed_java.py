"""The Java that Spark will run, and whether Spark accepts it.

Source: Spark 4.2 bin/spark-class, which looks for Java in the same order.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from typing import Final

from plog.error_base import PlogError

SUPPORTED: Final = (17, 21)
_REMEDY: Final = "install Java 17 or 21, and set JAVA_HOME if it is not the first in PATH"
# Otherwise, a program named java that does not end would block the command.
_TIMEOUT_S: Final = 60


class JavaError(PlogError):
    """Java is missing, or Spark does not run with it; the message contains a remedy."""


def find_java(environment: Mapping[str, str]) -> str:
    """Return the path of the program. Raises JavaError if there is no such program."""
    home = environment.get("JAVA_HOME")
    # As in bin/spark-class, an empty JAVA_HOME counts as not set. If it is set, PATH is not
    # searched.
    if home:
        path = os.path.join(home, "bin", "java")
        if not os.access(path, os.X_OK):
            raise JavaError(
                f"cannot run Spark: JAVA_HOME is {home}, which does not contain bin/java; {_REMEDY}"
            )
        return path
    found = shutil.which("java", path=environment.get("PATH"))
    if found is None:
        raise JavaError(f"cannot run Spark: Java is missing; {_REMEDY}")
    return found


def java_version(path: str) -> int:
    """Run a Java program and return its major version. Raises JavaError."""
    try:
        done = subprocess.run(
            [path, "-version"], capture_output=True, text=True, timeout=_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaError(f"cannot run Spark: {path} does not run: {error}; {_REMEDY}") from None
    # java -version prints to standard error.
    version = parse_version(done.stderr + done.stdout)
    if version is None:
        raise JavaError(f"cannot run Spark: {path} -version prints no version; {_REMEDY}")
    return version


def parse_version(text: str) -> int | None:
    """Return the major version in the output of ``java -version``, or None.

    >>> parse_version('openjdk version "21.0.4" 2024-07-16'), parse_version('version "1.8.0_292"')
    (21, 8)
    """
    # Up to Java 8, versions start with `1.`.
    found = re.search(r'version "(?:1\.)?([0-9]+)', text)
    return None if found is None else int(found[1])


def check_version(version: int, path: str) -> str | None:
    """Return a warning about a version that Spark may not support yet, or None.

    Raises JavaError for a version that is too old.
    """
    if version < min(SUPPORTED):
        raise JavaError(f"cannot run Spark: {path} is Java {version}; {_REMEDY}")
    if version in SUPPORTED:
        return None
    # Only a warning, because a later version of Java may work.
    return f"{path} is Java {version}, which is not tested; Java 17 and 21 are"
