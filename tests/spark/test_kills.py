"""A deduplicating stream from plog to plog, whose processes are killed at random moments."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from plog.client.simple import SimpleClient
from plog.records.record import Record
from tests.helpers.eventually import eventually
from tests.helpers.outside import missing
from tests.spark.faulty_stream import Stream
from tests.spark.spark_session import connector_jars

if TYPE_CHECKING:
    from plogd.testing.broker_process import BrokerProcess

KILLS = 50
ROWS_PER_KILL = 200
_ROOT = Path(__file__).parents[2]
_PROC = Path("/proc")


@dataclass
class Driver:
    """The driver of the stream, in a process of its own."""

    stream: Stream
    folder: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self, *, until_done: bool = False) -> None:
        wanted = {"stream": asdict(self.stream), "folder": str(self.folder), "ends": until_done}
        with (self.folder / "driver.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.killed_driver", json.dumps(wanted)],
                cwd=_ROOT,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": f"{_ROOT}:{_ROOT / 'daemon'}"},
            )

    def kill(self) -> None:
        """Kill the driver, its JVM and its Python workers."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def kill_worker(self, chance: random.Random) -> None:
        """Kill one of the Python workers, if there is one at this moment."""
        assert self.process is not None
        workers = [pid for pid in descendants(self.process.pid) if "pyspark.daemon" in command(pid)]
        if workers:
            with suppress(ProcessLookupError):
                os.kill(chance.choice(workers), signal.SIGKILL)


def command(pid: int) -> str:
    try:
        return (_PROC / str(pid) / "cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def descendants(root: int) -> list[int]:
    parents: dict[int, int] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = int(stat[1])
    found: list[int] = []
    new = [root]
    while new:
        new = [pid for pid, parent in parents.items() if parent in new]
        found += new
    return found


@contextmanager
def running(driver: Driver) -> Iterator[None]:
    try:
        yield
    finally:
        driver.kill()


@dataclass
class Rows:
    """The rows of the source, and their number."""

    broker: BrokerProcess
    topic: str
    expected: Counter[bytes] = field(default_factory=Counter)

    def add(self, count: int) -> None:
        host, _, port = self.broker.bootstrap_servers.rpartition(":")
        values = [b"row-%d" % (self.expected.total() + number) for number in range(count)]
        with SimpleClient(host, int(port)) as client:
            for partition in (0, 1):
                records = [Record(value=value) for value in values[partition::2]]
                client.produce(self.topic, partition, records)
        self.expected.update(values)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_each_row_is_written_once_after_random_kills(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    """Drivers, Python workers and the broker die; PLOG_TEST_KILLS sets how many."""
    pytest.importorskip("pyspark")
    if not connector_jars():
        missing("the jars of Spark's connector are missing")
    broker = start_broker()
    for topic, partitions in (("source", 2), ("target", 3), ("late", 1)):
        broker.create_topic(topic, partitions)
    stream = Stream(
        bootstrap_servers=broker.bootstrap_servers,
        source="source",
        target="target",
        late="late",
        checkpoint=str(tmp_path / "checkpoint"),
    )
    seed = int(os.environ.get("PLOG_TEST_SEED", random.randrange(1 << 32)))
    print(f"PLOG_TEST_SEED={seed}")
    chance = random.Random(seed)
    rows, driver = Rows(broker, "source"), Driver(stream, tmp_path)
    killed: Counter[str] = Counter()
    with running(driver):
        for _ in range(int(os.environ.get("PLOG_TEST_KILLS", KILLS))):
            rows.add(ROWS_PER_KILL)
            if not driver.is_running:
                driver.start()
            written = stream.count() + chance.randrange(1, ROWS_PER_KILL)
            eventually(
                lambda written=written: not driver.is_running or stream.count() >= written,
                "progress of the stream",
                timeout_s=180,
            )
            kind = chance.choice(("driver", "worker", "broker"))
            killed[kind] += 1
            if kind == "driver":
                driver.kill()
            elif kind == "worker" and driver.is_running:
                driver.kill_worker(chance)
            else:
                broker.kill()
                broker.start()
        driver.kill()
        driver.start(until_done=True)
        assert driver.process is not None
        assert driver.process.wait(timeout=300) == 0, (tmp_path / "driver.log").read_text()[-5000:]
    print(dict(killed))
    found = stream.values("target")
    assert found.total() == rows.expected.total()
    assert found == rows.expected
