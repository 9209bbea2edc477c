"""``make cluster``: three brokers and ZooKeeper, started and stopped by one command."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster.clients import consume, produce
from tests.helpers.eventually import TIMEOUT_S, eventually
from tests.helpers.outside import need_program
from tests.helpers.zookeeper_server import free_ports

LISTENING = re.compile(r"^(\S+(?: \d)?) listens on (\S+)\. Its process id is (\d+)\.$", re.M)


class Command:
    """A running ``python -m examples.cluster``, and its output."""

    def __init__(
        self, folder: Path, *options: str, environment: dict[str, str] | None = None
    ) -> None:
        self.output_path = folder / "output.txt"
        with self.output_path.open("w") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "examples.cluster", *options],
                stdout=output,
                stderr=output,
                env={**os.environ, "TMPDIR": str(folder), **(environment or {})},
            )

    @property
    def output(self) -> str:
        """The text that the command has printed so far."""
        return self.output_path.read_text()

    @property
    def servers(self) -> dict[str, tuple[str, int]]:
        """The address and process id of each server, by its name."""
        return {name: (address, int(pid)) for name, address, pid in LISTENING.findall(self.output)}

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of the brokers."""
        return ",".join(
            address for name, (address, _) in self.servers.items() if name.startswith("Broker")
        )

    def wait_until_ready(self) -> None:
        """Wait until the cluster has started."""
        eventually(
            lambda: "Ctrl-C stops" in self.output or self.process.poll() is not None, "cluster"
        )
        assert self.process.poll() is None, self.output

    def wait(self) -> int:
        """Return the exit code."""
        return self.process.wait(TIMEOUT_S)

    def kill(self) -> None:
        """End the command and its servers."""
        for _, pid in self.servers.values():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()


@pytest.fixture
def commands() -> Iterator[list[Command]]:
    """The commands of a test, which are ended."""
    commands: list[Command] = []
    yield commands
    for command in commands:
        if command.process.poll() is None:
            command.kill()


def ports() -> tuple[str, str, str, str]:
    """Return options for free ports: three in a row, below the ephemeral ones, and one more."""
    for first in range(20_000, 30_000, 3):
        with suppress(OSError):
            for port in range(first, first + 3):
                socket.create_server(("127.0.0.1", port)).close()
            break
    return "--port", str(first), "--zookeeper-port", str(free_ports(1)[0])


def is_gone(pid: int) -> bool:
    """Return whether a process has ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def create(command: Command, name: str) -> None:
    """Create a topic with three replicas."""
    admin = AdminClient({"bootstrap.servers": command.bootstrap_servers})
    [created] = admin.create_topics([NewTopic(name, 6, 3)]).values()
    created.result(TIMEOUT_S)


def test_cluster_serves_until_ctrl_c_stops_everything(
    commands: list[Command], tmp_path: Path
) -> None:
    need_program("java")
    commands.append(Command(tmp_path, *ports()))
    [command] = commands
    command.wait_until_ready()
    assert list(command.servers) == ["ZooKeeper", "Broker 1", "Broker 2", "Broker 3"]
    create(command, "clicks")
    produce(command, "clicks", b"1")
    assert consume(command, "clicks", "g", 1) == [b"1"]
    _, killed = command.servers["Broker 2"]
    os.kill(killed, signal.SIGKILL)
    eventually(lambda: "Broker 2 was ended by SIGKILL. To start it" in command.output, "report")
    command.process.send_signal(signal.SIGINT)
    assert command.wait() == 0
    assert all(is_gone(pid) for _, pid in command.servers.values())
    assert command.output.endswith("Stopping the cluster.\nThe cluster has stopped.\n")
    # The temporary folder was removed.
    assert list(tmp_path.iterdir()) == [command.output_path]


def test_data_is_kept_in_a_given_directory(commands: list[Command], tmp_path: Path) -> None:
    need_program("java")
    options = (*ports(), "--directory", str(tmp_path / "kept"))
    for number in range(2):
        commands.append(Command(tmp_path, *options))
        command = commands[-1]
        command.wait_until_ready()
        if number == 0:
            create(command, "clicks")
            produce(command, "clicks", b"1")
        else:
            assert consume(command, "clicks", "g", 1) == [b"1"]
        command.process.send_signal(signal.SIGTERM)
        assert command.wait() == 0
    names = {path.name for path in (tmp_path / "kept").iterdir()}
    assert {"broker-1", "broker-1.log", "zookeeper", "zookeeper.log"} <= names


def test_port_in_use_is_reported(commands: list[Command], tmp_path: Path) -> None:
    options = ports()
    used = int(options[1]) + 1
    with socket.create_server(("127.0.0.1", used)):
        commands.append(Command(tmp_path, *options))
        assert commands[0].wait() == 1
    assert commands[0].output == (
        f"plog: cannot start broker 2: cannot open port {used}: Address already in use; stop the"
        " program that uses it, or choose another port with --port\n"
    )


def test_missing_java_is_reported(commands: list[Command], tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    commands.append(Command(tmp_path, *ports(), environment={"PATH": str(empty)}))
    assert commands[0].wait() == 1
    assert commands[0].output == (
        "plog: cannot start ZooKeeper: Java is not installed; install a Java runtime, for example"
        " with: apt install default-jre-headless\n"
    )


def test_missing_jars_are_reported(commands: list[Command], tmp_path: Path) -> None:
    java = Path(need_program("java"))
    if Path("/usr/share/java/zookeeper.jar").exists():
        pytest.skip("ZooKeeper's jars are installed")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(java)
    commands.append(Command(tmp_path, *ports(), environment={"PATH": str(tmp_path / "bin")}))
    assert commands[0].wait() == 1
    assert "neither its jars nor Maven are installed" in commands[0].output
    assert "apt install libzookeeper-java" in commands[0].output
