"""A real broker process whose messages to systemd are received by the test.

    with SupervisedBroker(tmp_path, {"listeners": "PLAINTEXT://127.0.0.1:0"}) as broker:
        broker.wait_for("READY", "1")

The settings are exactly those given, because some tests need the defaults. `program` replaces
``-m plogd`` by a program that changes the broker before it runs it.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

from plogd.testing.ready_socket import addresses_in

TIMEOUT_S = 60.0


class SupervisedBroker:
    """A broker process; `messages` are the datagrams it has sent, each as its fields."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str],
        *,
        config_file: Path | None = None,
        program: str | None = None,
        max_files: int | None = None,
        **environment: str,
    ) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="plog-")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(f"{self._directory.name}/notify")
        self.messages: list[dict[str, str]] = []
        self.log_path = folder / "broker.log"
        path = os.pathsep.join(entry for entry in sys.path if entry)
        options = [word for name in settings for word in ("-o", f"{name}={settings[name]}")]
        command = ["-m", "plogd"] if program is None else ["-c", program]
        if config_file is not None:
            command += ["--config", str(config_file)]
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, *command, *options],
                cwd=folder,
                env={
                    **os.environ,
                    "PYTHONPATH": path,
                    "NOTIFY_SOCKET": f"{self._directory.name}/notify",
                    **environment,
                },
                stdout=log,
                stderr=log,
                preexec_fn=None if max_files is None else lambda: _limit_files(max_files),
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()
        self._socket.close()
        self._directory.cleanup()

    def wait_for(self, field: str, *parts: str) -> str:
        """Wait for a later message whose `field` contains all `parts`; return its value."""

        def fits(message: Mapping[str, str]) -> bool:
            return field in message and all(part in message[field] for part in parts)

        return self._wait(fits, f"{field} with {parts}")[field]

    def _wait(self, fits: Callable[[Mapping[str, str]], bool], what: str) -> dict[str, str]:
        deadline_s = time.monotonic() + TIMEOUT_S
        while (left_s := deadline_s - time.monotonic()) > 0:
            message = self.receive(left_s)
            if message is None:
                break
            if fits(message):
                return message
        raise AssertionError(f"no {what} in {self.messages}\n{self.log_text()}")

    def receive(self, timeout_s: float) -> dict[str, str] | None:
        """Return the next message, or None after `timeout_s` without one."""
        self._socket.settimeout(timeout_s)
        try:
            text = self._socket.recv(65536).decode()
        except TimeoutError:
            return None
        pairs = (line.partition("=") for line in text.splitlines())
        message = {name: value for name, _, value in pairs}
        self.messages.append(message)
        return message

    def receive_all(self) -> None:
        """Receive the messages that have arrived."""
        while self.receive(0.001) is not None:
            pass

    def address(self) -> str:
        """Wait until the broker serves requests; return the address of its first listener."""
        return self.addresses()[0]

    def addresses(self) -> list[str]:
        """Wait until the broker serves requests; return the addresses of its listeners."""
        status = self.wait_for("STATUS", "listening on ")
        assert self.messages[-1].get("READY") == "1"
        return addresses_in(status)

    def stop(self) -> None:
        """Stop the broker with SIGTERM, and check its exit code."""
        self.process.send_signal(signal.SIGTERM)
        assert self.exit_code() == 0, self.log_text()

    def exit_code(self) -> int:
        """Wait for the end of the process; return its exit code."""
        deadline_s = time.monotonic() + TIMEOUT_S
        while self.process.poll() is None and time.monotonic() < deadline_s:
            self.receive(0.05)  # A full socket would lose its last messages.
        self.receive_all()
        return self.process.wait(TIMEOUT_S)

    def log_text(self) -> str:
        """Return the output of all brokers in this folder."""
        return self.log_path.read_text()


def _limit_files(number: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (number, number))
