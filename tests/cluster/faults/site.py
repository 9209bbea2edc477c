"""`Site`: three brokers and a ZooKeeper ensemble of three, each server on its own machine.

Tests and faults use the names of the machines: ``broker-1`` to ``broker-3``, ``zookeeper-1`` to
``zookeeper-3``; the clients run on `CLIENT`. What the cluster does is read from its znodes.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from plogd.testing.broker_process import BrokerProcess
from tests.cluster.faults.machines import Machines
from tests.cluster.three_brokers import start_together
from tests.helpers.eventually import eventually
from tests.helpers.zookeeper_jars import zookeeper_class_path

IDS: Final = (1, 2, 3)
TOPIC: Final = "clicks"
PARTITIONS: Final = 6
SESSION_TIMEOUT_MS: Final = 2000
_PORT: Final = 9092
_ZOOKEEPER_PORT: Final = 2181
_SYNC_TIMEOUT_S: Final = 120.0
_QUIET: Final = "<configuration><root level='OFF'/></configuration>"


class Site:
    """The servers, with their files below `folder`; ``with`` starts and ends them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        names = [broker_machine(one) for one in IDS] + [zookeeper_machine(one) for one in IDS]
        self.machines = Machines(names)
        self._stack = ExitStack()
        self.brokers: dict[int, MachineBroker] = {}
        self._zookeepers: dict[int, subprocess.Popen[bytes]] = {}
        self._output: IO[bytes]
        self.znodes: KazooClient

    # -- start and end ------------------------------------------------------------------------

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.machines)
            self._output = stack.enter_context((self._folder / "zookeeper.log").open("wb"))
            stack.callback(self._kill_all)
            self._start_servers()
            stack.callback(self._close_client)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def _start_servers(self) -> None:
        self._configure_zookeepers()
        for one in IDS:
            self.start_zookeeper(one)
        eventually(lambda: self.zookeeper_leader, "leader of the ensemble")
        self.znodes = KazooClient(
            hosts=f"{self._ensemble}/plog",
            connection_retry={"max_tries": -1, "delay": 0.1, "max_delay": 0.5},
            command_retry={"max_tries": 100, "delay": 0.1, "max_delay": 0.5},
        )
        for one in IDS:
            self.brokers[one] = self._make_broker(one)
        start_together(self.brokers.values())
        self.znodes.start(60)

    def _close_client(self) -> None:
        self.znodes.stop()
        self.znodes.close()

    def _kill_all(self) -> None:
        for broker in self.brokers.values():
            if broker.is_running:
                broker.kill()
        for process in self._zookeepers.values():
            process.kill()
            process.wait()

    def _make_broker(self, one: int) -> MachineBroker:
        name = broker_machine(one)
        settings = {
            "plog.metadata.store": "zookeeper",
            "node.id": str(one),
            "zookeeper.connect": f"{self._ensemble}/plog",
            "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
            "zookeeper.connection.timeout.ms": "60000",
            "listeners": f"PLAINTEXT://{self.machines.address(name)}:{_PORT}",
            "offsets.topic.num.partitions": "4",
            "default.replication.factor": "3",
            "min.insync.replicas": "2",
            "replica.lag.time.max.ms": "5000",
        }
        return MachineBroker(self._folder / name, settings, self.machines, name)

    # -- ZooKeeper ----------------------------------------------------------------------------

    @property
    def _ensemble(self) -> str:
        return ",".join(
            f"{self.machines.address(zookeeper_machine(one))}:{_ZOOKEEPER_PORT}" for one in IDS
        )

    def _configure_zookeepers(self) -> None:
        (self._folder / "logback.xml").write_text(_QUIET)
        servers = "".join(
            f"server.{one}={self.machines.address(zookeeper_machine(one))}:2888:3888\n"
            for one in IDS
        )
        for one in IDS:
            data = self._folder / zookeeper_machine(one)
            data.mkdir()
            (data / "myid").write_text(str(one))
            (self._folder / f"zoo-{one}.cfg").write_text(
                f"tickTime=500\ninitLimit=20\nsyncLimit=6\ndataDir={data}\n"
                f"clientPort={_ZOOKEEPER_PORT}\nadmin.enableServer=false\n{servers}"
            )

    def start_zookeeper(self, one: int) -> None:
        """Start a ZooKeeper server, which serves once it has joined the others."""
        command = [
            "java",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Xmx64m",
            f"-Dlogback.configurationFile={self._folder}/logback.xml",
            "-cp",
            zookeeper_class_path(),
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            str(self._folder / f"zoo-{one}.cfg"),
        ]
        self._zookeepers[one] = subprocess.Popen(
            self.machines.command(zookeeper_machine(one), *command),
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
        )

    def kill_zookeeper(self, one: int) -> None:
        """Kill a ZooKeeper server."""
        process = self._zookeepers[one]
        process.kill()
        process.wait()

    @property
    def zookeeper_leader(self) -> int | None:
        """Return the server that leads the ensemble, or None."""
        return next((one for one in IDS if self._mode(one) == "leader"), None)

    def _mode(self, one: int) -> str:
        address = (self.machines.address(zookeeper_machine(one)), _ZOOKEEPER_PORT)
        try:
            with socket.create_connection(address, 1) as probe:
                probe.sendall(b"srvr")
                lines = probe.recv(4096).decode().splitlines()
        except OSError:
            return ""
        found = [line.removeprefix("Mode: ") for line in lines if line.startswith("Mode: ")]
        return found[0] if found else ""

    # -- processes ----------------------------------------------------------------------------

    def pause_broker(self, one: int) -> None:
        """Stop a broker's process with SIGSTOP."""
        os.kill(self.brokers[one].pid, signal.SIGSTOP)

    def resume_broker(self, one: int) -> None:
        """Continue a broker's process."""
        os.kill(self.brokers[one].pid, signal.SIGCONT)

    def pause_zookeeper(self, one: int) -> None:
        """Stop a ZooKeeper server with SIGSTOP."""
        os.kill(self._zookeepers[one].pid, signal.SIGSTOP)

    def resume_zookeeper(self, one: int) -> None:
        """Continue a ZooKeeper server."""
        os.kill(self._zookeepers[one].pid, signal.SIGCONT)

    # -- the cluster --------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """Return the addresses of all brokers, including those that do not run."""
        return ",".join(broker.bootstrap_servers for broker in self.brokers.values())

    @property
    def controller(self) -> int:
        """Return the controller; wait until there is one that runs."""

        def find() -> int | None:
            found = self._json("/controller")
            return found and self._if_running(found["brokerid"])

        return eventually(find, "controller", _SYNC_TIMEOUT_S)

    def leader(self, partition: int = 0) -> int:
        """Return the leader of a partition; wait until there is one that runs."""

        def find() -> int | None:
            found = self._json(_state_path(TOPIC, partition))
            return found and self._if_running(found["leader"])

        return eventually(find, f"leader of partition {partition}", _SYNC_TIMEOUT_S)

    def followers(self, partition: int = 0) -> list[int]:
        """Return the brokers that follow the leader of a partition."""
        leader = self.leader(partition)
        return [one for one in IDS if one != leader]

    def wait_until_in_sync(self) -> None:
        """Wait until each partition of all topics has a leader, and all replicas are in its ISR."""
        eventually(self._is_in_sync, "all replicas in the ISR", _SYNC_TIMEOUT_S)

    def _is_in_sync(self) -> bool:
        try:
            topics = self.znodes.get_children("/brokers/topics")
        except (KazooException, KazooTimeoutError):
            return False
        return all(map(self._topic_is_in_sync, topics))

    def _topic_is_in_sync(self, topic: str) -> bool:
        found = self._json(f"/brokers/topics/{topic}")
        if found is None:
            return False
        for number, replicas in found["partitions"].items():
            state = self._json(_state_path(topic, number))
            if state is None or state["leader"] < 0 or set(state["isr"]) != set(replicas):
                return False
        return True

    def _json(self, path: str) -> Any:
        """Return the contents of a znode; None if it is missing or ZooKeeper does not respond."""
        with suppress(NoNodeError, KazooException, KazooTimeoutError):
            return json.loads(self.znodes.get(path)[0])
        return None

    def _if_running(self, one: int) -> int | None:
        broker = self.brokers.get(one)
        return one if broker is not None and broker.is_running else None


class MachineBroker(BrokerProcess):
    """A broker on one of the machines."""

    def __init__(
        self, folder: Path, settings: dict[str, str], machines: Machines, name: str
    ) -> None:
        super().__init__(folder, settings)
        self._machines = machines
        self._machine = name

    def _command(self) -> list[str]:
        return self._machines.command(self._machine, *super()._command())


def broker_machine(one: int) -> str:
    """Return the name of a broker's machine."""
    return f"broker-{one}"


def zookeeper_machine(one: int) -> str:
    """Return the name of a ZooKeeper server's machine."""
    return f"zookeeper-{one}"


def _state_path(topic: str, partition: int | str) -> str:
    return f"/brokers/topics/{topic}/partitions/{partition}/state"
