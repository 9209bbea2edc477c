"""Consumers that coordinate themselves through a real ZooKeeper, as separate processes."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from plogd.testing.broker_process import BrokerProcess
from tests.cluster.clients import create, produce
from tests.cluster.conftest import StartBroker
from tests.helpers.eventually import TIMEOUT_S, eventually
from tests.helpers.zookeeper_server import ZooKeeperServer

TOPIC, GROUP, PARTITIONS = "clicks", "billing", 6
IDS = f"/consumers/{GROUP}/ids"
OWNERS = f"/consumers/{GROUP}/owners/{TOPIC}"
OFFSETS = f"/consumers/{GROUP}/offsets/{TOPIC}"


class ConsumerProcess:
    """A process of zookeeper_consumer.py; `values` are those of all records that it has read."""

    def __init__(self, face: str, broker: BrokerProcess, connect: str) -> None:
        arguments = (face, broker.bootstrap_servers, connect, GROUP, TOPIC)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.cluster.zookeeper_consumer", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.values: list[str] = []
        assert self.process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=[self.process.stdout], daemon=True)
        self._reader.start()

    def _read(self, stdout: IO[str]) -> None:
        for line in stdout:
            self.values.append(line.split()[2])

    def close(self) -> None:
        """Let it end in an orderly way."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(TIMEOUT_S) == 0
        self._reader.join()

    def kill(self) -> None:
        """End it, if it still runs."""
        self.process.kill()
        self.process.wait()
        self._reader.join()


StartConsumer = Callable[[str], ConsumerProcess]


@pytest.fixture
def broker(make_broker: StartBroker) -> BrokerProcess:
    """A broker with the topic."""
    broker = make_broker()
    broker.start()
    create(broker, TOPIC, PARTITIONS)
    return broker


@pytest.fixture
def start(broker: BrokerProcess, connect: str) -> Iterator[StartConsumer]:
    """A function that starts a consumer with a face."""
    started: list[ConsumerProcess] = []

    def start(face: str) -> ConsumerProcess:
        started.append(ConsumerProcess(face, broker, connect))
        return started[-1]

    yield start
    for each in started:
        each.kill()


def owners(znodes: KazooClient) -> list[str]:
    """Return the owners of all partitions that have one."""
    if znodes.exists(OWNERS) is None:
        return []
    found = []
    for name in znodes.get_children(OWNERS):
        # An owner may release its partition after the names were read.
        with contextlib.suppress(NoNodeError):
            found.append(znodes.get(f"{OWNERS}/{name}")[0].decode())
    return found


def is_shared(znodes: KazooClient, consumers: int) -> bool:
    """Return whether so many consumers own all partitions, and the same number each."""
    found = owners(znodes)
    counts = [found.count(one) for one in set(found)]
    return counts == [PARTITIONS // consumers] * consumers


def committed(znodes: KazooClient) -> int:
    """Return the sum of all committed offsets."""
    if znodes.exists(OFFSETS) is None:
        return 0
    return sum(int(znodes.get(f"{OFFSETS}/{one}")[0]) for one in znodes.get_children(OFFSETS))


def test_records_are_consumed_although_a_consumer_is_killed(
    broker: BrokerProcess,
    start: StartConsumer,
    znodes: KazooClient,
    zookeeper: ZooKeeperServer,
    connect: str,
) -> None:
    # One process with each interface of the library.
    consumers = [start(face) for face in ("blocking", "aio", "twisted")]
    eventually(lambda: is_shared(znodes, 3), "two partitions for each consumer")
    first = [b"a%d" % number for number in range(600)]
    produce(broker, TOPIC, *first)
    eventually(lambda: all(each.values for each in consumers), "records for each consumer")
    killed = consumers[0]
    killed.process.send_signal(signal.SIGKILL)
    second = [b"b%d" % number for number in range(600)]
    produce(broker, TOPIC, *second)
    eventually(lambda: is_shared(znodes, 2), "three partitions for each remaining consumer")
    expected = {value.decode() for value in (*first, *second)}
    eventually(
        lambda: {value for each in consumers for value in each.values} == expected, "all records"
    )
    eventually(lambda: committed(znodes) == len(expected), "all offsets in ZooKeeper")
    [one, *_] = znodes.get_children(OFFSETS)
    shown = shell(connect, "get", f"{OFFSETS}/{one}").splitlines()[-1]
    assert shown == znodes.get(f"{OFFSETS}/{one}")[0].decode()
    assert shell(connect, "ls", IDS).count(f"{GROUP}_") == 2
    for each in consumers[1:]:
        each.close()
    # They have left, and another consumer continues where they have stopped.
    assert znodes.get_children(IDS) == []
    last = start("blocking")
    produce(broker, TOPIC, b"c")
    eventually(lambda: last.values == ["c"], "only the new record")
    last.close()


def test_consumers_keep_reading_while_zookeeper_hangs(
    broker: BrokerProcess,
    start: StartConsumer,
    znodes: KazooClient,
    zookeeper: ZooKeeperServer,
) -> None:
    consumers = [start("blocking"), start("aio")]
    eventually(lambda: is_shared(znodes, 2), "three partitions for each consumer")
    # The broker reserves producer ids in ZooKeeper, so the next producer does not need it.
    produce(broker, TOPIC, b"first")
    eventually(lambda: committed(znodes) == 1, "a committed offset")
    with zookeeper.paused():
        values = [b"%d" % number for number in range(100)]
        produce(broker, TOPIC, *values)
        expected = {"first", *(value.decode() for value in values)}
        eventually(
            lambda: {value for each in consumers for value in each.values} == expected,
            "all records",
        )
    eventually(lambda: committed(znodes) == len(expected), "all offsets in ZooKeeper")
    eventually(lambda: is_shared(znodes, 2), "three partitions for each consumer")
    for each in consumers:
        each.close()


def test_example_of_the_documentation_works(broker: BrokerProcess, connect: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "zookeeper-consumers.md").read_text()
    create(broker, "page-views")
    produce(broker, "page-views", b"/index.html")
    code = page.partition("```python\n")[2].partition("```")[0]
    code = code.replace("localhost:9092", broker.bootstrap_servers)
    names: dict[str, Any] = {}
    exec(code.replace("localhost:2181", connect), names)  # noqa: S102 - our docs
    with names["consumer"] as consumer:
        eventually(lambda: consumer.consume(timeout_s=1) or consumer.assignment, "an assignment")
        consumer.seek_to_beginning()
        [record] = consumer.consume(timeout_s=TIMEOUT_S)
        assert record.value == b"/index.html"
    [line] = [
        each.strip() for each in page.splitlines() if "plog zookeeper-shell localhost" in each
    ]
    assert shell(*line.replace("localhost:2181", connect).split()[2:]).splitlines()[-1] == "1"


def shell(*arguments: str) -> str:
    """Run `plog zookeeper-shell`, and return its output."""
    done = subprocess.run(
        [sys.executable, "-m", "plog.cli", "zookeeper-shell", *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
