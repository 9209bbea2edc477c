"""Three real Apache ZooKeeper servers on loopback, each of which can be killed and restarted."""

from __future__ import annotations

import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tests.helpers.eventually import eventually
from tests.helpers.zookeeper_jars import zookeeper_class_path
from tests.helpers.zookeeper_server import free_ports

_JVM = ("java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx64m")
_QUIET = "<configuration><root level='OFF'/></configuration>"
_COUNT = 3


class ZooKeeperEnsemble:
    """The servers 0 to 2, with their data below `directory`; ``with`` kills them at the end."""

    def __init__(self, directory: Path) -> None:
        self._class_path = zookeeper_class_path()
        self._directory = directory
        (directory / "logback.xml").write_text(_QUIET)
        ports = free_ports(3 * _COUNT)
        self.ports = ports[:_COUNT]
        self.hosts = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        members = "".join(
            f"server.{number}=127.0.0.1:{quorum}:{election}\n"
            for number, (quorum, election) in enumerate(
                zip(ports[_COUNT : 2 * _COUNT], ports[2 * _COUNT :], strict=True), 1
            )
        )
        for index, port in enumerate(self.ports):
            data = directory / f"data-{index}"
            data.mkdir()
            (data / "myid").write_text(str(index + 1))
            (directory / f"zoo-{index}.cfg").write_text(
                f"tickTime=500\ninitLimit=10\nsyncLimit=4\ndataDir={data}\nclientPort={port}\n"
                f"clientPortAddress=127.0.0.1\nadmin.enableServer=false\n{members}"
            )
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by __exit__.
        try:
            for index in range(_COUNT):
                self.start(index)
            for index in range(_COUNT):
                eventually(lambda index=index: self.mode(index), f"ZooKeeper server {index}")
        except BaseException:
            self.__exit__()
            raise

    def start(self, index: int) -> None:
        """Start a server, which serves once it has joined the others."""
        self._processes[index] = subprocess.Popen(
            [
                *_JVM,
                f"-Dlogback.configurationFile={self._directory}/logback.xml",
                "-cp",
                self._class_path,
                "org.apache.zookeeper.server.quorum.QuorumPeerMain",
                str(self._directory / f"zoo-{index}.cfg"),
            ],
            stdout=self._errors,
            stderr=self._errors,
        )

    def kill(self, index: int) -> None:
        """Kill a server."""
        process = self._processes.pop(index)
        process.kill()
        process.wait()

    @contextmanager
    def paused(self, *indexes: int) -> Iterator[None]:
        """Stop these servers, which keep their connections, until the end of the block."""
        for index in indexes:
            self._processes[index].send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            for index in indexes:
                self._processes[index].send_signal(signal.SIGCONT)

    def mode(self, index: int) -> str:
        """Return whether a server is ``leader`` or ``follower``; '' if it does not serve."""
        try:
            with socket.create_connection(("127.0.0.1", self.ports[index]), 1) as probe:
                probe.sendall(b"srvr")
                answer = probe.recv(4096).decode()
        except OSError:
            return ""
        lines = (line.partition(": ") for line in answer.splitlines())
        return next((value for name, _, value in lines if name == "Mode"), "")

    @property
    def leader(self) -> int:
        """The server that leads; waits until there is one."""
        found = eventually(
            lambda: [index for index in range(_COUNT) if self.mode(index) == "leader"],
            "leader of the ensemble",
        )
        return found[0]

    def __enter__(self) -> ZooKeeperEnsemble:
        return self

    def __exit__(self, *_: object) -> None:
        for index in list(self._processes):
            self.kill(index)
        self._errors.close()
