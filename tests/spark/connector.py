"""Spark's own Kafka connector, spark-sql-kafka-0-10, with which the tests compare plog's source.

Maven downloads its jars once, through connector-jars. They only work with the Spark version that
they were built for.
"""

from __future__ import annotations

import importlib.metadata
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.helpers.outside import missing, need_program

VERSION = "4.2"
"""The version of Spark that the jars of connector-jars were built for."""
_JARS = Path(__file__).with_name("connector-jars")
_INSTALL_TIMEOUT_S = 600


def has_connector() -> bool:
    """Return whether the connector works with the installed pyspark."""
    return importlib.metadata.version("pyspark").startswith(f"{VERSION}.")


def need_connector() -> None:
    """Skip the test if the connector does not work with the installed pyspark."""
    if not has_connector():
        found = importlib.metadata.version("pyspark")
        pytest.skip(f"the Kafka connector is that of Spark {VERSION}, and pyspark is {found}")


def reference_source() -> str:
    """Return a source that is not plog's own if the connector works, and plog's otherwise."""
    return "kafka" if has_connector() else "plog"


@cache
def connector_jars() -> tuple[Path, ...]:
    """Return the connector's jars, downloaded on first use; end the test if that fails.

    Call it only if `has_connector` is true: other versions of pyspark have no connector.
    """
    need_program("java")
    if not has_connector():
        return ()
    for program in ("bash", "mvn"):
        need_program(program)
    done = subprocess.run([_JARS], capture_output=True, text=True, timeout=_INSTALL_TIMEOUT_S)
    if done.returncode != 0:
        missing(f"the jars of Spark's connector could not be fetched: {done.stderr.strip()[-500:]}")
    return tuple(sorted(Path(done.stdout.splitlines()[0]).glob("*.jar")))
