"""The SparkSession of the tests, with the official Kafka connector next to plog's data source.

Maven downloads the connector's jars once, through connector-jars.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.helpers.outside import missing, need_program

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_JARS = Path(__file__).with_name("connector-jars")
_INSTALL_TIMEOUT_S = 600
_ROOT = Path(__file__).parents[2]


def connector_jars() -> list[Path]:
    """Return the connector's jars, downloaded on first use; end the test if that fails."""
    for program in ("bash", "java", "mvn"):
        need_program(program)
    done = subprocess.run([_JARS], capture_output=True, text=True, timeout=_INSTALL_TIMEOUT_S)
    if done.returncode != 0:
        missing(f"the jars of Spark's connector could not be fetched: {done.stderr.strip()[-500:]}")
    return sorted(Path(done.stdout.splitlines()[0]).glob("*.jar"))


@contextmanager
def spark_session(folder: Path, master: str = "local[2]") -> Iterator[SparkSession]:
    """Yield a session, and stop it at the end; end the test without Spark."""
    if importlib.util.find_spec("pyspark") is None:
        missing("pyspark is not installed (pip install 'plog[spark]')")
    jars = connector_jars()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName("plog-tests")
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.jars": ",".join(map(str, jars)),
        "spark.local.dir": str(folder),
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    with pytest.MonkeyPatch.context() as environment:
        # The JVM inherits these, and its workers from it. Without them, workers would run the first
        # python3 in PATH, which may not find plog.
        environment.setenv("PYSPARK_PYTHON", sys.executable)
        environment.setenv("PYTHONPATH", f"{_ROOT}:{_ROOT / 'daemon'}")
        session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()
