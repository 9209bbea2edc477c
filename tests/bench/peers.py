"""The brokers that loads run on: plog, Apache Kafka, RabbitMQ, ActiveMQ, and a bare disk.

Each runs on loopback, on free ports, with all its files below its own directory; `stop` ends all
its processes. `Missing` says why a broker cannot run on this machine; the report mentions it.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from plogd.testing.broker_process import BrokerProcess

HERE = Path(__file__).parent
NEVER = str((1 << 63) - 1)
NO_SYNC = {"log.flush.interval.messages": NEVER}
"""Settings with which plog guarantees no more than Kafka does by default."""
KERNEL_BUFFERS = {"socket.send.buffer.bytes": "-1", "socket.receive.buffer.bytes": "-1"}
"""Settings with which Kafka does not set the sizes of socket buffers, as plog by default."""
_DELETE_FILES_SOON = {"log.segment.delete.delay.ms": "1000"}
"""Delete a topic's files soon, not after a minute, so that they do not affect the next load."""
_START_TIMEOUT_S = 120.0
_STOP_TIMEOUT_S = 60.0


class Missing(Exception):
    """The broker cannot run on this machine; the message says why."""


class Peer(Protocol):
    """A broker that can be started and stopped, several times, on the same data."""

    protocol: str
    """The value for clientbench's --protocol."""
    bootstrap: str
    directory: Path
    version: str

    @property
    def pid(self) -> int: ...
    @property
    def metrics_url(self) -> str: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...


class Plog:
    """plog below `directory`; `settings` are added to the defaults.

    `environment` may name another checkout of plog to run (comparison.py).
    """

    protocol = "kafka"

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        *,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = directory
        http_port = free_ports(1)
        self.metrics_url = f"http://127.0.0.1:{http_port}/metrics"
        ours = {"plog.http.port": str(http_port), **_DELETE_FILES_SOON}
        self._environment = environment
        self._process = self.make_process({**ours, **(settings or {})})
        self.bootstrap = ""
        self.version = git_version()

    def make_process(self, settings: Mapping[str, str]) -> BrokerProcess:
        """Return the process to start."""
        return BrokerProcess(self.directory, settings, environment=self._environment)

    @property
    def pid(self) -> int:
        """The process id of the broker."""
        return self._process.pid

    def start(self) -> None:
        """Start the broker and wait until it serves."""
        self._process.start()
        self.bootstrap = self._process.bootstrap_servers

    def stop(self) -> None:
        """Stop the broker cleanly if it is running."""
        if self._process.is_running:
            self._process.stop()

    def kill(self) -> None:
        """Kill the broker."""
        self._process.kill()


class Kafka:
    """Apache Kafka as started by kafka-up, with its defaults and its start script's heap.

    `settings` are added to the defaults.
    """

    protocol = "kafka"
    metrics_url = ""
    version = "Apache Kafka 4.3.1"

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        need("bash", "java", "mvn")
        self.directory = directory
        self._settings = {**_DELETE_FILES_SOON, **(settings or {})}
        self.pid = 0
        self._port = free_ports(2)
        self.bootstrap = f"127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start the broker and wait until it responds."""
        self.directory.mkdir(parents=True, exist_ok=True)
        properties = self.directory / "more.properties"
        properties.write_text(
            "".join(f"{name}={value}\n" for name, value in self._settings.items())
        )
        done = subprocess.run(
            [HERE / "kafka-up", str(self._port)],
            env={
                **os.environ,
                "KAFKA_DATA": str(self.directory),
                "KAFKA_PROPS": str(properties),
            },
            stdout=subprocess.PIPE,
            text=True,
        )
        if done.returncode:
            raise Missing("kafka-up could not start Kafka")
        self.pid = int(done.stdout)

    def stop(self) -> None:
        """Stop the broker with SIGTERM, or SIGKILL if necessary."""
        if self.pid:
            end_process(self.pid)
            self.pid = 0

    def kill(self) -> None:
        """Kill the broker."""
        os.kill(self.pid, signal.SIGKILL)
        while _is_running(self.pid):
            time.sleep(0.01)
        self.pid = 0


class Disk:
    """Not a broker, but the file system of its directory, for the fsync load."""

    protocol = "kafka"
    bootstrap = metrics_url = ""
    pid = 0
    version = "fdatasync"

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def start(self) -> None:
        """Create the directory."""
        self.directory.mkdir(parents=True, exist_ok=True)

    def stop(self) -> None:
        """Do nothing: there is no process."""


def need(*programs: str) -> None:
    """Raise Missing if one of the programs is not installed."""
    absent = [name for name in programs if shutil.which(name) is None]
    if absent:
        raise Missing(f"{', '.join(absent)} not installed")


def free_ports(count: int) -> int:
    """Return the first of `count` consecutive free ports."""
    while True:
        sockets = [socket.socket() for _ in range(count)]
        try:
            sockets[0].bind(("127.0.0.1", 0))
            first: int = sockets[0].getsockname()[1]
            for number, each in enumerate(sockets[1:], 1):
                each.bind(("127.0.0.1", first + number))
        except (OSError, OverflowError):
            continue
        finally:
            for each in sockets:
                each.close()
        return first


def wait_for_port(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the port is open. Raises Missing with the end of the log if the process ends."""
    give_up = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < give_up and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.1)
    process.kill()
    process.wait()
    raise Missing(f"the broker did not start: {log.read_text(errors='replace')[-500:]}")


def end_process(pid: int, wait: Callable[[], object] | None = None) -> None:
    """Send SIGTERM, and SIGKILL after a minute. `wait` reaps the process if it is a child."""
    os.kill(pid, signal.SIGTERM)
    give_up = time.monotonic() + _STOP_TIMEOUT_S
    while _is_running(pid):
        if time.monotonic() > give_up:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    if wait:
        wait()


def _is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def git_version() -> str:
    """Return the commit that the bench measures."""
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=HERE, capture_output=True, text=True
    )
    return f"plog {done.stdout.strip()}"
