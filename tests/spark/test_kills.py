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

from plog.cli.spark.installed_packages import spark_home
from plog.client.simple import SimpleClient
from plog.records.record import Record
from tests.helpers.eventually import eventually
from tests.spark.faulty_stream import Stream
from tests.spark.process_tree import EXECUTOR, WORKER, descendants
from tests.spark.test_launcher import need_spark

if TYPE_CHECKING:
    from plogd.testing.broker_process import BrokerProcess

KILLS = 50
ROWS_PER_KILL = 200
_ROOT = Path(__file__).parents[2]


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
                env={
                    **os.environ,
                    "PYTHONPATH": f"{_ROOT}:{_ROOT / 'daemon'}",
                    "SPARK_HOME": str(linked_home(self.folder)),
                },
            )

    def kill(self) -> None:
        """Kill the driver, its JVM and its Python workers."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def kill_one(self, kind: str, chance: random.Random) -> bool:
        """Kill an executor or a Python worker; return whether there was one at this moment."""
        assert self.process is not None
        found = descendants(self.process.pid, kind)
        if found:
            with suppress(ProcessLookupError):
                os.kill(chance.choice(found), signal.SIGKILL)
        return bool(found)


def linked_home(folder: Path) -> Path:
    """Return a home of Spark in `folder`, because executors write below it."""
    home = folder / "spark"
    home.mkdir(exist_ok=True)
    for path in spark_home().iterdir():
        if not (home / path.name).exists():
            (home / path.name).symlink_to(path)
    return home


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
    """Drivers, executors, Python workers and the broker die; PLOG_TEST_KILLS sets how many."""
    need_spark()
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
            kind = chance.choice(("driver", "broker", EXECUTOR, WORKER))
            if kind == "driver":
                driver.kill()
            elif kind == "broker" or not driver.kill_one(kind, chance):
                kind = "broker"
                broker.kill()
                broker.start()
            killed[kind] += 1
        driver.kill()
        driver.start(until_done=True)
        assert driver.process is not None
        assert driver.process.wait(timeout=300) == 0, (tmp_path / "driver.log").read_text()[-5000:]
    print(dict(killed))
    found = stream.values("target")
    assert found.total() == rows.expected.total()
    assert found == rows.expected
