"""A socket unit without systemd: it holds listening sockets and passes them to broker processes.

The sockets stay open while no broker runs, and they block, as those of systemd do. A `Service` is
one process of the broker, started by any command.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from plogd.testing.ready_socket import NotReadyError, ReadySocket

TIMEOUT_S = 60
# Runs the command as this process, because LISTEN_PID has to be its id; as systemd does.
_PASS_SOCKETS = """
import os, sys
descriptors = [int(word) for word in sys.argv[1].split(",")]
high = [os.dup2(d, 100 + i) for i, d in enumerate(descriptors)]
for i, descriptor in enumerate(high):
    os.dup2(descriptor, 3 + i)
    os.close(descriptor)
os.environ["LISTEN_PID"] = str(os.getpid())
os.execv(sys.argv[2], sys.argv[2:])
"""
_API_VERSIONS = bytes.fromhex("0012 0000 00000007 ffff")
"""ApiVersions version 0 with correlation id 7 and without a client id."""


class Service:
    """A broker process that has got the sockets."""

    def __init__(self, process: subprocess.Popen[bytes], ready: ReadySocket, log: Path) -> None:
        self.process = process
        self._ready = ready
        self._log = log

    def wait_until_ready(self) -> list[str]:
        """Return the addresses that the broker reports."""
        try:
            return self._ready.wait(self.process, TIMEOUT_S)
        except NotReadyError as error:
            raise AssertionError(self.log_text()) from error

    def freeze_during_stop(self) -> None:
        """Send SIGTERM, and freeze the process as soon as it reports that it is stopping."""
        self.process.terminate()
        self._ready.wait_for("STOPPING", "1", TIMEOUT_S)
        self.process.send_signal(signal.SIGSTOP)
        state = os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        assert state is not None, "waitid waits"
        assert state.si_code == os.CLD_STOPPED, "the broker has stopped before it could be frozen"

    def thaw(self) -> None:
        """Let a frozen process continue."""
        self.process.send_signal(signal.SIGCONT)

    def wait(self) -> int:
        """Return the exit code when the process has ended."""
        return self.process.wait(TIMEOUT_S)

    def stop(self) -> None:
        """Stop the broker, which must have no error to report."""
        self.process.terminate()
        # After its shutdown, twistd ends with the signal that requested it.
        assert self.wait() in (0, -signal.SIGTERM), self.log_text()

    def log_text(self) -> str:
        """Return the output of all brokers of the unit."""
        return self._log.read_text()


class SocketUnit:
    """Listening sockets by name; `folder` is for the brokers' data and output."""

    def __init__(self, folder: Path, names: Sequence[str] = ("PLAINTEXT",)) -> None:
        self._folder = folder
        self._names = names
        self.sockets = [socket.create_server(("127.0.0.1", 0)) for _ in names]

    def __enter__(self) -> SocketUnit:
        return self

    def __exit__(self, *_: object) -> None:
        for sock in self.sockets:
            sock.close()

    @property
    def address(self) -> str:
        """The address of the first socket."""
        return f"127.0.0.1:{self.port()}"

    def port(self, index: int = 0) -> int:
        """Return the port of a socket."""
        return int(self.sockets[index].getsockname()[1])

    def connect(self) -> socket.socket:
        """Connect a client to the first socket."""
        return socket.create_connection(("127.0.0.1", self.port()), TIMEOUT_S)

    @contextmanager
    def run(self, command: Sequence[str], settings: dict[str, str]) -> Iterator[Service]:
        """Start a broker with `command` and `settings`; kill it at the end if it runs."""
        settings = {"log.dirs": f"{self._folder}/data", "plog.http.port": "0", **settings}
        words = [f"{name}={value}" for name, value in settings.items()]
        options = [word for setting in words for word in ("-o", setting)]
        descriptors = [sock.fileno() for sock in self.sockets]
        wrapper = [sys.executable, "-c", _PASS_SOCKETS, ",".join(map(str, descriptors))]
        log = self._folder / "broker.log"
        with ExitStack() as stack:
            ready = ReadySocket()
            stack.callback(ready.close)
            process = subprocess.Popen(
                [*wrapper, *command, *options],
                stdout=(output := stack.enter_context(log.open("ab"))),
                stderr=output,
                cwd=self._folder,
                pass_fds=descriptors,
                env=self._environment(ready.path),
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            yield Service(process, ready, log)

    def _environment(self, notify_socket: str) -> dict[str, str]:
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry),
            "NOTIFY_SOCKET": notify_socket,
            "LISTEN_FDS": str(len(self.sockets)),
            "LISTEN_FDNAMES": ":".join(self._names),
        }


def send_request(client: socket.socket) -> None:
    """Send a request; `receive_response` checks its response."""
    client.sendall(len(_API_VERSIONS).to_bytes(4, "big") + _API_VERSIONS)


def receive_response(client: socket.socket) -> None:
    """Receive the response to `send_request`; AssertionError if it does not arrive."""
    client.settimeout(TIMEOUT_S)
    head = client.recv(8, socket.MSG_WAITALL)
    assert head[4:] == _API_VERSIONS[4:8], f"received {head!r} instead of a response"
    client.recv(int.from_bytes(head[:4], "big") - 4, socket.MSG_WAITALL)
