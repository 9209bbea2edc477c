"""Kafka Connect: the lines of a file pass through a topic into another file; restarts lose none."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from plogd.testing.broker_process import BrokerProcess
from tests.helpers.access_log import write_access_log
from tests.helpers.programs.connect import (
    WORKER,
    ConnectRest,
    free_port,
    sink,
    source,
    wait_until_equal,
    write_properties,
)
from tests.helpers.programs.java_process import JavaProcess
from tests.helpers.programs.kafka_tools import KafkaTools

SIZE_BYTES = 200_000


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """The source's file with some lines, and the path of the sink's file, which does not exist."""
    original = tmp_path / "original.log"
    write_access_log(original, SIZE_BYTES)
    return original, tmp_path / "copy.log"


def grow(file: Path, seed: int) -> None:
    """Append the same number of different lines."""
    more = file.with_suffix(".more")
    write_access_log(more, SIZE_BYTES, seed)
    with file.open("ab") as end:
        end.write(more.read_bytes())


def test_standalone_worker_copies_a_file_and_resumes_after_a_restart(
    kafka_tools: KafkaTools,
    broker: BrokerProcess,
    topic: str,
    tmp_path: Path,
    files: tuple[Path, Path],
) -> None:
    original, copy = files
    worker = {
        "bootstrap.servers": broker.bootstrap_servers,
        "offset.storage.file.filename": str(tmp_path / "connect.offsets"),
        "listeners": "http://127.0.0.1:0",
    }
    arguments = [
        write_properties(tmp_path / "worker.properties", WORKER, worker),
        write_properties(
            tmp_path / "source.properties", {"name": f"{topic}-from"}, source(original, topic)
        ),
        write_properties(tmp_path / "sink.properties", {"name": f"{topic}-to"}, sink(copy, topic)),
    ]
    for run in range(2):
        with kafka_tools.start("ConnectStandalone", *arguments):
            wait_until_equal(copy, original)
            # Lines appended while the worker runs are copied.
            grow(original, seed=run)
            wait_until_equal(copy, original)
        # So are lines appended while it is stopped.
        grow(original, seed=run + 100)
    assert copy.read_bytes() == original.read_bytes()[: copy.stat().st_size]


def test_worker_takes_over_from_one_that_stops(
    kafka_tools: KafkaTools,
    broker: BrokerProcess,
    topic: str,
    tmp_path: Path,
    files: tuple[Path, Path],
) -> None:
    """Two distributed workers keep their configs, offsets and status in three compacted topics."""
    original, copy = files
    ports = [free_port(), free_port()]
    with ExitStack() as stack:
        workers = [
            stack.enter_context(_start_worker(kafka_tools, broker, topic, tmp_path, port))
            for port in ports
        ]
        rests = [ConnectRest(port) for port in ports]
        names = (f"{topic}-from", f"{topic}-to")
        rests[0].put_connector(names[0], source(original, topic))
        rests[1].put_connector(names[1], sink(copy, topic))
        both = {f"127.0.0.1:{port}" for port in ports}
        assert rests[0].wait_until_running(names[0]) | rests[0].wait_until_running(names[1]) == both
        wait_until_equal(copy, original)

        workers[0].stop()
        grow(original, seed=1)
        wait_until_equal(copy, original)
        for name in names:
            assert rests[1].wait_until_running(name) == {f"127.0.0.1:{ports[1]}"}
    described = kafka_tools.run(
        "ConfigCommand", "--bootstrap-server", broker.bootstrap_servers, "--describe",
        "--topic", f"{topic}-connect-offset",
    )  # fmt: skip
    assert "cleanup.policy=compact" in described


def _start_worker(
    tools: KafkaTools, broker: BrokerProcess, name: str, folder: Path, port: int
) -> JavaProcess:
    worker = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": f"{name}-workers",
        "listeners": f"http://127.0.0.1:{port}",
        "heartbeat.interval.ms": "200",
        # Rebalance immediately when a worker leaves.
        "scheduled.rebalance.max.delay.ms": "0",
        "offset.storage.partitions": "3",
    }
    for kind in ("config", "offset", "status"):
        worker[f"{kind}.storage.topic"] = f"{name}-connect-{kind}"
        worker[f"{kind}.storage.replication.factor"] = "1"
    properties = write_properties(folder / f"worker-{port}.properties", WORKER, worker)
    return tools.start("ConnectDistributed", properties)
