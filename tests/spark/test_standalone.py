"""`plog spark pack`, and a job on a cluster whose hosts have none of the packages.

The cluster, the archive and the job are shared: each of them starts JVMs or takes seconds.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from plog.client.consumer.simple_consumer import SimpleConsumer
from plog.client.simple import SimpleClient
from plog.records.batch import Compression
from plog.records.record import Record
from plog.types import TopicPartition
from plogd.testing.broker_process import BrokerProcess
from tests.helpers.eventually import eventually
from tests.spark.spark_session import FEW_ROWS, JVM_OPTIONS
from tests.spark.standalone import StandaloneCluster, standalone_cluster
from tests.spark.test_launcher import QUIET, need_spark

ROOT = Path(__file__).parents[2]
JOB = Path(__file__).with_name("standalone_job.py")
_TIMEOUT_S = 300
ROWS = 1200
"""Rows of each partition: enough to fill the buffers between Spark and its Python workers."""
VALUES = [[f"{part}-{number}-{'x' * 300}" for number in range(ROWS)] for part in range(2)]
"""The values in each partition of the source."""
VALUES[0][ROWS - 100] = "poison"
SOURCE, COPY, ONCE = "standalone-source", "standalone-copy", "standalone-once"


@dataclass(frozen=True, slots=True)
class Finished:
    """What the job has left."""

    folder: Path
    bootstrap_servers: str

    def read(self, name: str) -> object:
        """Return the contents of one of its files."""
        return json.loads((self.folder / name).read_text())

    def values(self, topic: str) -> Counter[str]:
        """Return the values in a topic."""
        partitions = [TopicPartition(topic, number) for number in range(2)]
        with SimpleConsumer(bootstrap_servers=self.bootstrap_servers) as consumer:
            ends = consumer.end_offsets(partitions)
            return Counter(
                record.value.decode()
                for one in partitions
                for record in consumer.records(one, 0, ends[one])
            )


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive of this environment."""
    need_spark()
    path = tmp_path_factory.mktemp("pack") / "environment.tar.gz"
    command = [sys.executable, "-m", "plog.cli", "spark", "pack", str(path)]
    subprocess.run(command, check=True, timeout=_TIMEOUT_S)
    return path


@pytest.fixture(scope="module")
def finished(
    archive: Path, broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory
) -> Finished:
    """A job on a cluster with two workers, whose executors were killed twice."""
    for topic in (SOURCE, COPY, ONCE):
        broker.create_topic(topic, 2)
    host, _, port = broker.bootstrap_servers.rpartition(":")
    with SimpleClient(host, int(port)) as client:
        for partition, texts in enumerate(VALUES):
            records = [Record(value=text.encode()) for text in texts]
            # Compressed, so that the executors need the packed packages to read.
            client.produce(SOURCE, partition, records, compression=Compression.ZSTD)
    folder = tmp_path_factory.mktemp("job")
    # At this number of records, the other task of the stream has completed, and the one that is
    # killed has written some rows.
    words = (broker.bootstrap_servers, SOURCE, COPY, ONCE, str(folder), str(ROWS + 100))
    with (
        standalone_cluster(tmp_path_factory.mktemp("cluster"), workers=2) as cluster,
        running_job(cluster, archive, folder, *words) as job,
    ):
        for step in ("batch", "stream"):
            flag = folder / step
            eventually(lambda flag=flag: flag.exists() or job.poll() is not None, step, _TIMEOUT_S)
            os.kill(cluster.executor_of(int(flag.read_text())), signal.SIGKILL)
        assert job.wait(_TIMEOUT_S) == 0
    return Finished(folder, broker.bootstrap_servers)


@contextmanager
def running_job(
    cluster: StandaloneCluster, archive: Path, folder: Path, *words: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Run the job; if the test fails, print what the job has printed."""
    # Only the driver finds plog there: the path is relative to its own working directory.
    for name, path in (("src", ROOT), ("daemon", ROOT / "daemon")):
        (folder / name).symlink_to(path)
    options = ["--master", cluster.url, *QUIET, "--conf", f"spark.local.dir={folder}"]
    options += ["--conf", "spark.executor.memory=512m", "--archives", f"{archive}#environment"]
    settings = {**FEW_ROWS, "spark.executor.extraJavaOptions": JVM_OPTIONS}
    for name, value in settings.items():
        options += ["--conf", f"{name}={value}"]
    output = folder / "output"
    with (
        output.open("wb") as file,
        subprocess.Popen(
            [sys.executable, "-m", "plog.cli", "spark", *options, str(JOB), *words],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": "src:daemon"},
            stdout=file,
            stderr=file,
        ) as process,
    ):
        try:
            yield process
        except BaseException:
            process.kill()
            print(output.read_text()[-6000:])
            raise


def test_cluster_reads_and_writes_with_the_packed_archive(finished: Finished) -> None:
    [file] = finished.read("files.json")
    assert Path(file).parts[-3] == "environment"
    assert finished.values(COPY) == Counter(text.upper() for texts in VALUES for text in texts)


def test_batch_is_complete_after_its_executor_was_killed(finished: Finished) -> None:
    assert finished.read("rows.json") == [
        [partition, offset, text]
        for partition, texts in enumerate(VALUES)
        for offset, text in enumerate(texts)
    ]


def test_stream_writes_each_row_once_after_its_executor_was_killed(finished: Finished) -> None:
    assert finished.values(ONCE) == Counter(text for texts in VALUES for text in texts)


def test_warehouse_stores_each_record_once(finished: Finished) -> None:
    import pyarrow.parquet as pq

    rows = [
        (row["partition"], row["offset"], row["value"].decode())
        for path in (finished.folder / "warehouse" / SOURCE).rglob("*.parquet")
        for row in pq.ParquetFile(path).read(["partition", "offset", "value"]).to_pylist()
    ]
    assert sorted(rows) == [
        (partition, offset, text)
        for partition, texts in enumerate(VALUES)
        for offset, text in enumerate(texts)
    ]
