"""One broker as a child process with a directory of its own, to start, stop, kill and start again.

It is the broker itself, started as ``python -m plogd`` on a free loopback port, so whatever holds
here holds for an installed one; only the data directory and the ports differ from the defaults.
With `controls` it is the same broker on ports that a test may reach into (controlled_main.py).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from plogd.testing.control_channel import ChannelClosed, ControlClient
from plogd.testing.ready_socket import NotReadyError, ReadySocket
from plogd.testing.running_broker import (
    ASK_TIMEOUT_S,
    NOT_RUNNING,
    RUNS_ALREADY,
    START_TIMEOUT_S,
    STOP_TIMEOUT_S,
    RunningBroker,
)
from plogd.testing.running_broker import BrokerFailed as BrokerFailed  # For who imports it here.


class BrokerProcess(RunningBroker):
    """A broker in a process of its own, started as ``python -m plogd``.

    Settings go before those of `config_file`, a server.properties; `environment` is added to ours.
    `controls` is for hooks, `advance_time` and the topics a test makes without a client.
    """

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        *,
        config_file: Path | None = None,
        environment: Mapping[str, str] | None = None,
        controls: bool = False,
    ) -> None:
        super().__init__(directory, settings)
        self._config_file = config_file
        self._environment = dict(environment or {})
        self._is_controlled = controls
        self._process: subprocess.Popen[bytes] | None = None
        self._ready_socket: ReadySocket | None = None
        self._control: ControlClient | None = None

    @property
    def pid(self) -> int:
        """The broker's process id. Raises BrokerFailed if it is not running."""
        return self._running().pid

    @property
    def is_running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the broker and return when it serves. Raises BrokerFailed if it does not."""
        if self.is_running:
            raise BrokerFailed(RUNS_ALREADY)
        self.data_dir.mkdir(parents=True, exist_ok=True)
        # Open until the process ends, which has a last word to say to it.
        self._ready_socket = ReadySocket()
        self._control = ControlClient() if self._is_controlled else None
        started = time.monotonic()
        try:
            with self.log_path.open("ab") as log:
                self._process = subprocess.Popen(
                    self._command(),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=self.data_dir.parent,
                    env={**_environment(self._ready_socket.path), **self._environment},
                    pass_fds=[self._control.theirs.fileno()] if self._control else [],
                )
            if self._control is not None:
                self._control.theirs.close()
            addresses = self._ready_socket.wait(self._process, START_TIMEOUT_S)
        except NotReadyError as error:
            self.kill()
            raise BrokerFailed(f"the broker is {error}\n{self._log_tail()}") from error
        self._serves(addresses, time.monotonic() - started)

    def stop(self) -> None:
        """Ask it to stop (SIGTERM) and wait for that. Raises BrokerFailed if it was not clean."""
        process = self._running()
        self._end_hooks()
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            self.kill()
            raise BrokerFailed(f"the broker did not stop\n{self._log_tail()}") from error
        self._ended()
        if code != 0:
            raise BrokerFailed(f"the broker stopped with code {code}\n{self._log_tail()}")

    def kill(self) -> None:
        """End it on the spot (SIGKILL): no flush, no clean-shutdown mark."""
        process = self._running()
        self._end_hooks()
        process.kill()
        process.wait()
        self._ended()

    def reload(self) -> None:
        """Let it read its settings again (SIGHUP); returns when it has done so."""
        process = self._running()
        assert self._ready_socket is not None, NOT_RUNNING
        process.send_signal(signal.SIGHUP)
        self._ready_socket.wait(process, START_TIMEOUT_S)

    def _end_hooks(self) -> None:
        """Hear what became of the hooks, if it can still tell."""
        try:
            self.hooks.reset()
        except (BrokerFailed, TimeoutError):
            self.hooks.forget()

    def _ended(self) -> None:
        self._has_to_run = False
        if self._ready_socket is not None:
            self._ready_socket.close()
            self._ready_socket = None
        if self._control is not None:
            self._control.close()
            self._control = None

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise BrokerFailed(NOT_RUNNING)
        return self._process

    def _ask(self, command: str, *, timeout_s: float = ASK_TIMEOUT_S, **arguments: Any) -> Any:
        if not self._is_controlled:
            raise BrokerFailed(f"{command}: start it with BrokerProcess(..., controls=True)")
        control = self._control
        if control is None:
            raise BrokerFailed(f"{command}: {NOT_RUNNING}")
        try:
            return control.ask(command, arguments, timeout_s)
        except ChannelClosed as error:
            raise BrokerFailed(f"{error}\n{self._log_tail()}") from error

    def _command(self) -> list[str]:
        command = [sys.executable, "-m", "plogd"]
        if self._control is not None:
            descriptor = str(self._control.theirs.fileno())
            command = [*command[:2], "plogd.testing.controlled_main", descriptor]
            command.append(repr(self._moved_s))
        if self._config_file is not None:
            command += ["--config", str(self._config_file)]
        for assignment in self._assignments():
            command += ["-o", assignment]
        return command


def _environment(notify_socket: str) -> dict[str, str]:
    """Ours, with the modules this process imports and the socket to report to."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return {**os.environ, "PYTHONPATH": path, "NOTIFY_SOCKET": notify_socket}
