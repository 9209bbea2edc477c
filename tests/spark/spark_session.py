"""The SparkSession of the tests, with the official Kafka connector next to plog's data source."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from plog.cli.spark.installed_packages import spark_home
from plog.cli.spark.linked_home import home_in
from tests.helpers.outside import missing
from tests.spark.connector import connector_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JVM_OPTIONS = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
    # With the first option, the default is 48 MB. If one session runs most of the tests, these are
    # not enough, and the JVM ends with a VirtualMachineError.
    " -XX:ReservedCodeCacheSize=256m"
)
"""Options for JVMs of tests; they reduce the time of all Spark tests by a tenth."""
FEW_ROWS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
}
"""Settings for queries with few rows, for which generating code takes longer than it saves.

The drivers of test_launcher.py and test_example.py have Spark's defaults.
"""
_ROOT = Path(__file__).parents[2]


@contextmanager
def spark_session(
    folder: Path, master: str = "local[2]", more: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """Yield a session with the settings `more`, and stop it at the end; end the test without Spark.

    Starting one takes several seconds.
    """
    if importlib.util.find_spec("pyspark") is None:
        missing("pyspark is not installed (pip install 'plog[spark]')")
    jars = connector_jars()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName("plog-tests")
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.executor.extraJavaOptions": JVM_OPTIONS,
        "spark.jars": ",".join(map(str, jars)),
        "spark.local.dir": str(folder),
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **FEW_ROWS,
        **(more or {}),
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    with pytest.MonkeyPatch.context() as environment:
        # The JVM inherits these, and its workers from it. Without them, workers would run the first
        # python3 in PATH, which may not find plog.
        environment.setenv("SPARK_HOME", str(home_in(folder, spark_home())))
        environment.setenv("PYSPARK_PYTHON", sys.executable)
        environment.setenv("PYTHONPATH", f"{_ROOT}:{_ROOT / 'daemon'}")
        session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()
