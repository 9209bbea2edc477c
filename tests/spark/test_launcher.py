"""`plog spark`: jobs run with their arguments, streams, exit code and signals."""

from __future__ import annotations

import importlib.util
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from plog.cli.main import STOPPED
from plog.client.faces.blocking import Producer
from plogd.testing.broker_process import BrokerProcess
from tests.helpers.client.plog_command import RunningPlog
from tests.helpers.eventually import eventually
from tests.helpers.outside import missing, need_program

QUIET = [
    *("--conf", "spark.ui.enabled=false", "--conf", "spark.log.level=ERROR"),
    *("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.ui.showConsoleProgress=false"),
]
COUNT = """
import sys
from pyspark.sql import SparkSession

_, servers, topic, *rest = sys.argv
print("asked for", *rest, file=sys.stderr)
spark = SparkSession.builder.getOrCreate()
rows = spark.read.format("plog").option("kafka.bootstrap.servers", servers)
rows = rows.option("subscribe", topic).load()
print("master", spark.sparkContext.master, "name", spark.sparkContext.appName)
print("pushdown", spark.conf.get("spark.sql.python.filterPushdown.enabled"))
print("rows", rows.count(), "input", input())
sys.exit(7)
"""
ENDLESS = """
import time
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")

def wait(rows):
    print("task runs", flush=True)
    time.sleep(600)
    return rows

spark.sparkContext.parallelize([1], 1).mapPartitions(wait).count()
"""


@pytest.fixture(autouse=True)
def _spark() -> None:
    need_spark()


def need_spark() -> None:
    """End the test if Spark cannot run."""
    need_program("java")
    if importlib.util.find_spec("pyspark") is None:
        missing("pyspark is not installed (pip install 'plog[spark]')")


def spark_job(folder: Path, text: str, *arguments: str) -> list[str]:
    """Return the command line that runs a job with a master of one thread."""
    file = folder / "job.py"
    file.write_text(text)
    options = ["--master", "local[1]", *QUIET, "--conf", f"spark.local.dir={folder}"]
    return [sys.executable, "-m", "plog.cli", "spark", *options, str(file), *arguments]


def test_job_has_its_arguments_streams_and_exit_code(
    broker: BrokerProcess, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    topic = new_topic()
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for value in (b"a", b"b"):
            producer.send(topic, value).result()
    command = spark_job(tmp_path, COUNT, broker.bootstrap_servers, topic, "--master", "other")
    with RunningPlog(command) as running:
        running.type("line\n")
        assert running.wait() == 7
        assert running.lines == [
            "master local[1] name job.py",
            "pushdown true",
            "rows 2 input line",
        ]
        assert "asked for --master other" in running.errors


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_a_running_task_and_all_processes(
    tmp_path: Path, number: signal.Signals
) -> None:
    with RunningPlog(spark_job(tmp_path, ENDLESS)) as running:
        # Spark writes the output of workers to standard error.
        eventually(lambda: "task runs" in running.errors, "task")
        # The end of the output: the JVM and its workers, which have inherited it, have ended, too.
        assert running.stop(number) == -number


def warehouse_job(
    broker: BrokerProcess, topic: str, folder: Path, *more: str, checkpoint: str = "c"
) -> list[str]:
    """Return the command line of `warehouse`, after adding a record to its topic."""
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send(topic, b"a").result()
    spark = ["--master", "local[1]", *QUIET, "--conf", f"spark.local.dir={folder}"]
    job = ["warehouse", "--bootstrap-server", broker.bootstrap_servers, "--topic", topic]
    folders = ["--output", f"{folder}/w", "--checkpoint", f"{folder}/{checkpoint}"]
    return [sys.executable, "-m", "plog.cli", "spark", *spark, *job, *folders, *more]


def test_job_of_plog_runs_by_its_name_until_a_signal(
    broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    with RunningPlog(warehouse_job(broker, topic, tmp_path, "--interval", "1")) as running:
        line = "batch 1: 1 record of 1 topic in 1 file, 0 dead letters"
        eventually(lambda: line in running.lines, "batch")
        # The end of the output: the JVM and its workers, which have inherited it, have ended, too.
        assert running.stop(signal.SIGINT) == STOPPED
    assert "plog: stopped" in running.errors
    assert not any("Traceback" in line for line in running.errors), running.errors


@pytest.mark.long
def test_job_of_plog_ends_when_it_has_read_everything(
    broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    with RunningPlog(warehouse_job(broker, topic, tmp_path, "--available-now")) as running:
        assert running.wait() == 0
        assert running.lines[-1] == "batch 1: 1 record of 1 topic in 1 file, 0 dead letters"


@pytest.mark.long
def test_folder_of_another_query_is_refused(
    broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    for checkpoint, code in (("c", 0), ("other", 1)):
        command = warehouse_job(broker, topic, tmp_path, "--available-now", checkpoint=checkpoint)
        with RunningPlog(command) as running:
            assert running.wait() == code
    refusal = f"plog: the query failed: cannot write to {tmp_path}/w: "
    assert any(line.startswith(refusal) for line in running.errors), running.errors[-20:]
