"""A deduplicating stream that is interrupted at any step writes each row once."""

from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from plog.records.record import Record
from tests.helpers.programs.apache_kafka import ApacheKafka
from tests.spark.cluster import Cluster
from tests.spark.faulty_stream import LATE, POISON, Fault, Stream, driver_process
from tests.spark.test_write import write

_ROOT = Path(__file__).parents[2]
_DRIVER_TIMEOUT_S = 240
ROWS = 1200
"""Rows of each partition: enough to fill the buffers between Spark and its Python workers."""
PADDING = "x" * 300


def values(text: str, *, with_poison: bool = False, with_late: bool = False) -> list[str]:
    """Return the rows of one partition; each fourth row equals the one before it."""
    made = [f"{text}-{number - (number % 4 == 3)}-{PADDING}" for number in range(ROWS)]
    if with_late:
        made[5::10] = [f"{LATE}-{value}" for value in made[5::10]]
    if with_poison:
        made[ROWS - 100] = f"{text}-{POISON}-{PADDING}"
    return made


class Site:
    """A stream, and the rows that it must have written."""

    def __init__(
        self,
        cluster: Cluster,
        new_topic: Callable[[], str],
        checkpoint: Path,
        *,
        tasks: int | None = None,
    ) -> None:
        self.checkpoint = checkpoint
        self.stream = Stream(
            bootstrap_servers=cluster.bootstrap_servers,
            source=new_topic(),
            target=new_topic(),
            late=new_topic(),
            checkpoint=str(checkpoint),
            tasks=tasks,
        )
        for topic, partitions in (
            (self.stream.source, 2),
            (self.stream.target, 3),
            (self.stream.late, 2),
        ):
            cluster.create(topic, partitions)
        self._produce = cluster.produce
        self.expected: Counter[bytes] = Counter()

    def add(self, *partitions: list[str]) -> None:
        """Add rows to the source."""
        for number, rows in enumerate(partitions):
            headers = (("h", b"x"), ("h", None))
            for start in range(0, len(rows), 200):
                records = [
                    Record(value=value.encode(), headers=headers if row % 2 else ())
                    for row, value in enumerate(rows[start : start + 200])
                ]
                self._produce(self.stream.source, number, records)
            self.expected += Counter(value.encode() for value in rows)

    def fault(self, kind: str, after: int) -> Fault:
        written = self.stream.count()
        flag = self.checkpoint.with_name(f"{self.checkpoint.name}-{kind}")
        return Fault(kind=kind, flag=str(flag), after=written + after)

    def check(self) -> None:
        """Assert that each row is in its output topic once."""
        late = Counter({x: n for x, n in self.expected.items() if x.startswith(LATE.encode())})
        found = [self.stream.values(topic) for topic in (self.stream.target, self.stream.late)]
        for one, expected in zip(found, (self.expected - late, late), strict=True):
            assert one.total() == expected.total()
            assert one == expected

    def forget_commits(self) -> None:
        """Remove the last entry of Spark's commit log, as if the driver had died before it."""
        commits = self.checkpoint / "commits"
        last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
        for path in commits.iterdir():
            if path.name in (str(last), f".{last}.crc"):
                path.unlink()


@pytest.fixture
def site(cluster: Cluster, new_topic: Callable[[], str], tmp_path: Path) -> Site:
    return Site(cluster, new_topic, tmp_path / "checkpoint")


def run(cluster: Cluster, site: Site, fault: Fault | None = None) -> None:
    site.stream.start(cluster.spark, fault).awaitTermination()


def test_rows_are_written_once_without_faults_and_after_a_lost_commit(
    cluster: Cluster, site: Site
) -> None:
    for text in ("first", "second"):
        site.add(values(text), values("equal in both"))
        run(cluster, site)
        site.check()
        site.forget_commits()
        run(cluster, site)
        site.check()
    run(cluster, site)
    site.check()


@pytest.mark.parametrize("kind", ["error", "worker"])
def test_rows_are_written_once_after_a_failed_task(cluster: Cluster, site: Site, kind: str) -> None:
    from pyspark.errors import StreamingQueryException

    site.add(values("before"), values("before"))
    run(cluster, site)
    # The other task completes, and this one is interrupted. The second topic is new.
    site.add(values("a", with_poison=True, with_late=True), values("b", with_late=True))
    with pytest.raises(StreamingQueryException):
        run(cluster, site, site.fault(kind, after=ROWS + 100))
    run(cluster, site)
    site.check()
    site.add(values("a"), values("b", with_late=True))
    run(cluster, site)
    site.check()


def run_driver(site: Site, fault: Fault, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a driver of its own until it ends after the fault."""
    command = driver_process(site.stream, fault, folder)
    done = subprocess.run(
        command, cwd=_ROOT, capture_output=True, text=True, timeout=_DRIVER_TIMEOUT_S
    )
    print(done.stderr)
    assert Path(fault.flag).exists()
    return done


def test_rows_are_written_once_after_the_driver_was_killed(
    cluster: Cluster, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    site = Site(cluster, new_topic, tmp_path / "checkpoint", tasks=3)
    site.add(values("a", with_poison=True), values("equal in both", with_late=True))
    assert run_driver(site, site.fault("driver", 500), tmp_path).returncode == -signal.SIGKILL
    run(cluster, site)
    site.check()


@pytest.mark.long
def test_rows_are_written_once_after_driver_and_worker_are_killed(
    cluster: Cluster, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    """The second driver survives the loss of a worker, because its tasks have several attempts."""
    site = Site(cluster, new_topic, tmp_path / "checkpoint", tasks=3)
    site.add(values("a", with_poison=True), values("equal in both", with_late=True))
    faults = [site.fault(kind, after) for kind, after in (("driver", 500), ("worker", 600))]
    assert [run_driver(site, fault, tmp_path) for fault in faults] == [-signal.SIGKILL, 0]
    site.check()


@pytest.mark.long
def test_rows_are_written_once_after_a_repeated_stage(
    cluster: Cluster, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    """Spark counts the attempts of a task from 0 again.

    In a driver of its own: Spark forgets the executor whose files are missing. In local mode, that
    is the driver itself, which ends ten minutes later.
    """
    site = Site(cluster, new_topic, tmp_path / "checkpoint", tasks=1)
    # The task opens the second file of the shuffle long after the fault in the first one: the rows
    # between them do not fit into the buffers of sockets.
    rows = [f"{number}-{PADDING * 10}" for number in range(4 * ROWS)]
    rows[ROWS // 2] = POISON
    site.add(rows, rows)
    fault = dataclasses.replace(site.fault("shuffle", after=100), folder=str(tmp_path))
    done = run_driver(site, fault, tmp_path)
    assert done.returncode == 0
    assert json.loads(done.stdout.splitlines()[-1])["stage_attempt"] > 0
    site.check()


def test_rows_are_written_once_to_kafka_after_a_failed_task_and_a_lost_commit(
    cluster: Cluster, kafka: ApacheKafka, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    on_kafka = Cluster(cluster.spark, kafka.bootstrap_servers)
    site = Site(on_kafka, new_topic, tmp_path / "checkpoint")
    site.add(values("a", with_poison=True, with_late=True), values("b"))
    with pytest.raises(StreamingQueryException):
        run(on_kafka, site, site.fault("error", after=ROWS + 100))
    run(on_kafka, site)
    site.check()
    site.forget_commits()
    run(on_kafka, site)
    site.check()
    site.add(values("a"), values("b"))
    run(on_kafka, site)
    site.check()


def test_query_without_its_checkpoint_writes_its_rows_again(
    cluster: Cluster, site: Site, tmp_path: Path
) -> None:
    site.add(values("a"), [])
    run(cluster, site)
    site.stream = dataclasses.replace(site.stream, checkpoint=str(tmp_path / "other"))
    run(cluster, site)
    site.expected += site.expected
    site.check()


def test_batch_query_is_refused(cluster: Cluster, topic: str) -> None:
    rows = cluster.spark.sql("SELECT 'v' AS value")
    with pytest.raises(Exception, match="only a streaming query repeats a batch"):
        write(cluster, "plog", rows, topic=topic, deduplicate="n")
