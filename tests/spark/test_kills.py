"""Two streams whose processes die at random moments: a deduplicating one, and `warehouse`."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from plog.client.simple import SimpleClient
from plog.records.record import Record
from tests.helpers.eventually import eventually
from tests.spark.faulty_stream import Stream
from tests.spark.process_tree import EXECUTOR, WORKER, descendants
from tests.spark.test_launcher import need_spark

if TYPE_CHECKING:
    from plogd.testing.broker_process import BrokerProcess

KILLS = [2, pytest.param(50, marks=[pytest.mark.long, pytest.mark.timeout(3600)])]
ROWS_PER_KILL = 200
_ROOT = Path(__file__).parents[2]


@dataclass
class Driver:
    """The driver of the streams, in a process of its own; `wanted` is for killed_driver.py."""

    wanted: Mapping[str, Any]
    folder: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self, *, until_done: bool = False) -> None:
        # The JVM of a driver that has failed may still run a batch.
        self.kill()
        wanted = {**self.wanted, "folder": str(self.folder), "ends": until_done}
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


def kill_at_random(driver: Driver, rows: Rows, count: Callable[[], int], kills: int) -> None:
    """Kill `kills` processes while the streams read new rows, and then let them end.

    Drivers, executors, Python workers and the broker die. `count` returns the number of rows that
    both streams have written.
    """
    seed = int(os.environ.get("PLOG_TEST_SEED", random.randrange(1 << 32)))
    print(f"PLOG_TEST_SEED={seed}")
    chance = random.Random(seed)
    killed: Counter[str] = Counter()
    with running(driver):
        for _ in range(kills):
            rows.add(ROWS_PER_KILL)
            if not driver.is_running:
                driver.start()
            written = count() + chance.randrange(1, 2 * ROWS_PER_KILL)
            eventually(
                lambda written=written: not driver.is_running or count() >= written,
                "progress of the streams",
                timeout_s=180,
            )
            kind = chance.choice(("driver", "broker", EXECUTOR, WORKER))
            if kind == "driver":
                driver.kill()
            elif kind == "broker" or not driver.kill_one(kind, chance):
                kind = "broker"
                rows.broker.kill()
                rows.broker.start()
            killed[kind] += 1
        driver.start(until_done=True)
        assert driver.process is not None
        log = driver.folder / "driver.log"
        assert driver.process.wait(timeout=300) == 0, log.read_text()[-5000:]
    print(dict(killed))


@pytest.mark.parametrize("kills", KILLS)
def test_streams_write_each_row_once_after_random_kills(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path, kills: int
) -> None:
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
    folders = {name: str(tmp_path / "warehouse" / name) for name in ("output", "checkpoint")}
    table = tmp_path / "warehouse" / "output" / "source"
    rows = Rows(broker, "source")
    driver = Driver({"stream": asdict(stream), **folders}, tmp_path)
    kill_at_random(driver, rows, lambda: stream.count() + len(stored_offsets(table)), kills)
    total = rows.expected.total()
    assert stream.values("target").total() == total
    assert stream.values("target") == rows.expected
    expected = Counter((number % 2, number // 2) for number in range(total))
    assert Counter(stored_offsets(table)) == expected


def stored_offsets(table: Path) -> list[tuple[int, int]]:
    """Return partition and offset of the rows of a table; files may be replaced meanwhile."""
    import pyarrow.parquet as pq

    found: list[tuple[int, int]] = []
    for path in table.glob("date=*/hour=*/*.parquet"):
        with suppress(FileNotFoundError):
            columns = pq.ParquetFile(path).read(["partition", "offset"]).to_pydict()
            found += zip(columns["partition"], columns["offset"], strict=True)
    return found
