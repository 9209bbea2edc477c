"""`plog spark pack`, and a job on a cluster whose hosts have none of the packages."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from plog.client.faces.blocking import Consumer, Producer
from plogd.testing.broker_process import BrokerProcess
from tests.spark.standalone import standalone_cluster
from tests.spark.test_launcher import QUIET, need_spark

ROOT = Path(__file__).parents[2]
_TIMEOUT_S = 300

COPY = """
import sys
from pyspark.sql import SparkSession

_, servers, source, target = sys.argv
spark = SparkSession.builder.getOrCreate()

def place(batches):
    import plog
    import pyarrow as pa

    for batch in batches:
        yield pa.RecordBatch.from_pydict({"file": [plog.__file__] * batch.num_rows})

executors = spark.range(2, numPartitions=2).mapInArrow(place, "file string").collect()
print("plog in", {row.file.split("/")[-3] for row in executors})
rows = spark.read.format("plog").option("kafka.bootstrap.servers", servers)
rows = rows.option("subscribe", source).option("minPartitions", 2).load()
print("tasks", rows.rdd.getNumPartitions())
writer = rows.selectExpr("key", "upper(cast(value as string)) AS value").write.format("plog")
writer = writer.option("kafka.bootstrap.servers", servers).option("topic", target)
writer.mode("append").save()
"""


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a cluster with two workers."""
    need_spark()
    with standalone_cluster(tmp_path_factory.mktemp("cluster"), workers=2) as url:
        yield url


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive of this environment."""
    need_spark()
    path = tmp_path_factory.mktemp("pack") / "environment.tar.gz"
    command = [sys.executable, "-m", "plog.cli", "spark", "pack", str(path)]
    subprocess.run(command, check=True, timeout=_TIMEOUT_S)
    return path


def run_on(master: str, archive: Path, folder: Path, *words: str) -> list[str]:
    """Run the job on the cluster, and return its output."""
    (folder / "job.py").write_text(COPY)
    # Only the driver finds plog there: the path is relative to its own working directory.
    for name, path in (("src", ROOT), ("daemon", ROOT / "daemon")):
        (folder / name).symlink_to(path)
    options = ["--master", master, *QUIET, "--conf", f"spark.local.dir={folder}"]
    options += ["--conf", "spark.executor.memory=512m", "--archives", f"{archive}#environment"]
    done = subprocess.run(
        [sys.executable, "-m", "plog.cli", "spark", *options, "job.py", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": "src:daemon"},
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout.splitlines()


def test_cluster_reads_and_writes_with_the_packed_archive(
    master: str,
    archive: Path,
    broker: BrokerProcess,
    new_topic: Callable[[], str],
    tmp_path: Path,
) -> None:
    source, target = new_topic(), new_topic()
    values = [f"value {number}" for number in range(100)]
    # Compressed, so that the executors need the packed packages to read.
    config = {"bootstrap.servers": broker.bootstrap_servers, "compression.type": "zstd"}
    with Producer(config=config) as producer:
        for value in values:
            producer.send(source, value.encode())
    output = run_on(master, archive, tmp_path, broker.bootstrap_servers, source, target)
    assert output == ["plog in {'environment'}", "tasks 2"]
    with Consumer(
        target, bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest"
    ) as consumer:
        records = iter(consumer)
        found = sorted(next(records).value.decode() for _ in values)
    assert found == sorted(value.upper() for value in values)
