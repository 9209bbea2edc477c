"""Clusters that loads run on: three plog brokers with ZooKeeper, and three brokers of Apache Kafka.

Both run on loopback, with equal timeouts for brokers that do not respond. Kafka's brokers are also
its controllers (KRaft). A broker can be killed and started again by its number, 1 to 3.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from examples.cluster.server import CannotStart, Server
from examples.cluster.zookeeper import start_zookeeper, wait_until_it_serves
from plogd.testing.broker_process import BrokerProcess
from tests.bench.peers import Kafka, Missing, Peer, free_ports, git_version, need

NUMBERS: Final = (1, 2, 3)
_SESSION_TIMEOUT_MS: Final = "9000"
"""Kafka's default of broker.session.timeout.ms."""
_REPLICATED: Final = {
    "offsets.topic.replication.factor": "3",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "log.segment.delete.delay.ms": "1000",
}
_HEAP: Final = "-Xms512M -Xmx512M"


class PlogCluster:
    """Three plog brokers below `directory`; `settings` are added to the defaults."""

    protocol = "kafka"
    metrics_url = ""

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        self.version = git_version()
        self._zookeeper_port = free_ports(1)
        self._zookeeper: Server | None = None
        self._brokers = {number: self._make_broker(number, settings or {}) for number in NUMBERS}

    def _make_broker(self, number: int, settings: Mapping[str, str]) -> BrokerProcess:
        ours = {
            "plog.metadata.store": "zookeeper",
            "node.id": str(number),
            "zookeeper.connect": self.zookeeper_connect,
            "zookeeper.session.timeout.ms": _SESSION_TIMEOUT_MS,
        }
        folder = self.directory / f"broker-{number}"
        return BrokerProcess(folder, {**_REPLICATED, **ours, **settings})

    @property
    def zookeeper_connect(self) -> str:
        """The addresses of ZooKeeper, and the chroot."""
        return f"127.0.0.1:{self._zookeeper_port}/plog"

    @property
    def bootstrap(self) -> str:
        """The addresses of the running brokers."""
        running = [broker for broker in self._brokers.values() if broker.is_running]
        return ",".join(broker.bootstrap_servers for broker in running)

    @property
    def pid(self) -> int:
        """The process id of the first broker."""
        return self._brokers[1].pid

    @property
    def pids(self) -> tuple[int, ...]:
        """The process ids of all brokers and of ZooKeeper."""
        assert self._zookeeper is not None, "the cluster is not running"
        return (*self.broker_pids, self._zookeeper.process.pid)

    @property
    def broker_pids(self) -> tuple[int, ...]:
        """The process ids of all brokers."""
        return tuple(broker.pid for broker in self._brokers.values())

    def start(self) -> None:
        """Start ZooKeeper and all brokers. Raises Missing."""
        self.directory.mkdir(parents=True, exist_ok=True)
        try:
            self._zookeeper = start_zookeeper(self.directory, self._zookeeper_port)
            wait_until_it_serves(self._zookeeper, self._zookeeper_port)
        except CannotStart as error:
            raise Missing(str(error)) from error
        for broker in self._brokers.values():
            broker.start()

    def stop(self) -> None:
        """Kill all processes, whose data is not needed any more."""
        for broker in self._brokers.values():
            if broker.is_running:
                broker.kill()
        if self._zookeeper is not None:
            self._zookeeper.terminate()
            self._zookeeper.wait()
            self._zookeeper = None

    def kill_broker(self, number: int) -> None:
        """Kill a broker."""
        self._brokers[number].kill()

    def start_broker(self, number: int) -> None:
        """Start a broker again."""
        self._brokers[number].start()


class KafkaCluster:
    """Three brokers of Apache Kafka below `directory`, with heaps of 512 MB."""

    protocol = "kafka"
    metrics_url = ""
    version = Kafka.version

    def __init__(self, directory: Path) -> None:
        need("bash", "java", "mvn")
        self.directory = directory
        self._ports = {number: free_ports(2) for number in NUMBERS}
        self._pids: dict[int, int] = {}

    @property
    def bootstrap(self) -> str:
        """The addresses of the running brokers."""
        return ",".join(f"127.0.0.1:{self._ports[number]}" for number in sorted(self._pids))

    @property
    def pid(self) -> int:
        """The process id of the first broker."""
        return self._pids[1]

    @property
    def pids(self) -> tuple[int, ...]:
        """The process ids of all brokers."""
        return tuple(self._pids.values())

    broker_pids = pids

    def start(self) -> None:
        """Start all brokers. Raises Missing."""
        # At the same time, because a broker accepts clients only when most of them run.
        with ThreadPoolExecutor(len(NUMBERS)) as pool:
            list(pool.map(self.start_broker, NUMBERS))

    def stop(self) -> None:
        """Kill all brokers, whose data is not needed any more."""
        for number in list(self._pids):
            self.kill_broker(number)

    def kill_broker(self, number: int) -> None:
        """Kill a broker."""
        process = Kafka(self.directory / f"broker-{number}")
        process.pid = self._pids.pop(number)
        process.kill()

    def start_broker(self, number: int) -> None:
        """Start a broker, and wait until it responds. Raises Missing."""
        folder = self.directory / f"broker-{number}"
        folder.mkdir(parents=True, exist_ok=True)
        voters = ",".join(f"{one}@127.0.0.1:{port + 1}" for one, port in self._ports.items())
        settings = {
            **_REPLICATED,
            "node.id": str(number),
            "controller.quorum.voters": voters,
            "broker.session.timeout.ms": _SESSION_TIMEOUT_MS,
        }
        properties = folder / "more.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        done = subprocess.run(
            [Path(__file__).with_name("kafka-up"), str(self._ports[number])],
            env={
                **os.environ,
                "KAFKA_DATA": str(folder),
                "KAFKA_PROPS": str(properties),
                "KAFKA_HEAP_OPTS": _HEAP,
            },
            stdout=subprocess.PIPE,
            text=True,
        )
        if done.returncode:
            raise Missing(f"kafka-up could not start broker {number}")
        self._pids[number] = int(done.stdout)


def pids_of(peer: Peer) -> tuple[int, ...]:
    """Return the process ids of a broker or of a cluster."""
    return peer.pids if isinstance(peer, PlogCluster | KafkaCluster) else (peer.pid,)
