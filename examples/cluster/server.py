"""A server of the local cluster: a child process with a log file, which Ctrl-C does not reach.

The terminal sends Ctrl-C to all processes of its group at the same time. Each server has a group of
its own, so that local_cluster.py can stop the brokers before ZooKeeper.
"""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

_STOP_TIMEOUT_S = 60.0
_LOG_TAIL_CHARACTERS = 1000


class CannotStart(Exception):
    """The cluster cannot start; the text names the cause and the remedy."""


class Server:
    """A running program, named for messages, whose output goes to `log`."""

    def __init__(
        self, name: str, command: Sequence[str], log: Path, environment: Mapping[str, str]
    ) -> None:
        self.name = name
        self._log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=dict(environment),
                process_group=0,
            )

    def failed(self, why: str) -> CannotStart:
        """Return the error for a server that did not start, with the end of its log."""
        tail = self._log.read_text(errors="replace")[-_LOG_TAIL_CHARACTERS:].strip()
        return CannotStart(
            f"cannot start {self.name}: {why}; its log {self._log} ends with\n{tail}"
        )

    def end_reason(self) -> str:
        """Return how the process has ended; '' if it is running."""
        code = self.process.poll()
        if code is None:
            return ""
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"

    def terminate(self) -> None:
        """Ask the process to stop."""
        self.process.terminate()

    def wait(self) -> None:
        """Wait until the process has stopped; kill it if it does not stop in time."""
        try:
            self.process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def check_port(port: int, user: str, option: str) -> None:
    """Raise CannotStart if `port` of the loopback interface is in use."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except (OSError, OverflowError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise CannotStart(
                f"cannot start {user}: cannot open port {port}: {reason}; stop the program that"
                f" uses it, or choose another port with {option}"
            ) from error
