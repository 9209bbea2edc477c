"""A broker as a child process with its own directory, which can be stopped, killed and restarted.

It is the real broker, started as ``python -m plogd`` on a free loopback port, so it behaves like an
installed broker; only the data directory and the ports differ from the defaults. With `controls`,
the same broker uses ports that a test can control (controlled_main.py).
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
from plogd.testing.hooks import RESET_TIMEOUT_S
from plogd.testing.ready_socket import NotReadyError, ReadySocket
from plogd.testing.running_broker import (
    ASK_TIMEOUT_S,
    NOT_RUNNING,
    RUNS_ALREADY,
    START_TIMEOUT_S,
    STOP_TIMEOUT_S,
    RunningBroker,
)
from plogd.testing.running_broker import BrokerFailed as BrokerFailed  # A public re-export.

_KILL_HOOKS_TIMEOUT_S = 2.0


class BrokerProcess(RunningBroker):
    """A broker in its own process, started as ``python -m plogd``.

    `settings` override the settings in `config_file`, a server.properties; `environment` extends
    the environment of this process. `controls` enables hooks, `advance_time` and the creation of
    topics without a client.
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
        """Return the broker's process id. Raises BrokerFailed if it is not running."""
        return self._running().pid

    @property
    def is_running(self) -> bool:
        """Return whether the process is running."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the broker and wait until it is ready. Raises BrokerFailed if it fails to start."""
        if self.is_running:
            raise BrokerFailed(RUNS_ALREADY)
        self.data_dir.mkdir(parents=True, exist_ok=True)
        # The socket stays open until the process ends, because the broker also reports its
        # shutdown.
        self._ready_socket = ReadySocket()
        self._control = ControlClient() if self._is_controlled else None
        started = time.monotonic()
        try:
            # Appended, because `check` continues after the part of the log that it has read, even
            # if the broker was restarted.
            with self.log_path.open("ab") as log:
                self._process = subprocess.Popen(
                    self._command(),
                    # Otherwise, the broker would share the terminal with the test runner and its
                    # debugger.
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    # A relative path in the settings must not point into the test's working
                    # directory.
                    cwd=self.data_dir.parent,
                    env={**_environment(self._ready_socket.path), **self._environment},
                    pass_fds=[self._control.theirs.fileno()] if self._control else [],
                )
            # Only the child may hold this end, so that its exit ends the channel.
            if self._control is not None:
                self._control.theirs.close()
            addresses = self._ready_socket.wait(self._process, START_TIMEOUT_S)
        except NotReadyError as error:
            self.kill()
            raise BrokerFailed(f"the broker is {error}\n{self._log_tail()}") from error
        self._serves(addresses, time.monotonic() - started)

    def stop(self) -> None:
        """Stop the broker with SIGTERM. Raises BrokerFailed if it does not stop cleanly."""
        process = self._running()
        # Before the signal, because a request that a hook delays would also delay the shutdown.
        self._end_hooks()
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            self.kill()
            raise BrokerFailed(f"the broker did not stop\n{self._log_tail()}") from error
        # Before the check, so that the broker can be restarted after an unclean stop.
        self._ended()
        if code != 0:
            raise BrokerFailed(f"the broker stopped with code {code}\n{self._log_tail()}")

    def kill(self) -> None:
        """End the broker with SIGKILL, without a flush or a clean shutdown marker."""
        process = self._running()
        # Not longer: another thread may be waiting for a hook, which ends with the broker.
        self._end_hooks(_KILL_HOOKS_TIMEOUT_S)
        process.kill()
        # Only after this do other processes get the ports and the lock of the data directory.
        process.wait()
        self._ended()

    def reload(self) -> None:
        """Reload the broker's settings with SIGHUP, and wait until the reload is done."""
        process = self._running()
        assert self._ready_socket is not None, NOT_RUNNING
        # An earlier message would end the wait before the reload is done.
        self._ready_socket.drain()
        process.send_signal(signal.SIGHUP)
        self._ready_socket.wait(process, START_TIMEOUT_S)

    def _end_hooks(self, timeout_s: float = RESET_TIMEOUT_S) -> None:
        """Record the hits of the hooks if the broker can still report them."""
        try:
            self.hooks.reset(timeout_s)
        except (BrokerFailed, TimeoutError):
            # The broker may have exited already, or it may hang.
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
            raise BrokerFailed(
                f"cannot run {command}: controls are disabled; use BrokerProcess(...,"
                " controls=True)"
            )
        control = self._control
        if control is None:
            raise BrokerFailed(f"cannot run {command}: {NOT_RUNNING}")
        try:
            return control.ask(command, arguments, timeout_s)
        except ChannelClosed as error:
            raise BrokerFailed(f"{error}\n{self._log_tail()}") from error

    def _command(self) -> list[str]:
        command = [sys.executable, "-m", "plogd"]
        if self._control is not None:
            descriptor = str(self._control.theirs.fileno())
            command = [*command[:2], "plogd.testing.controlled_main", descriptor]
            # A restart keeps advanced time: the timestamps on disk must not be in the future.
            command.append(repr(self._moved_s))
        if self._config_file is not None:
            command += ["--config", str(self._config_file)]
        for assignment in self._assignments():
            command += ["-o", assignment]
        return command


def _environment(notify_socket: str) -> dict[str, str]:
    """Return this process's environment with its module path and the notify socket."""
    # The child must import the same plog as the test, whether plog is installed or not.
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return {**os.environ, "PYTHONPATH": path, "NOTIFY_SOCKET": notify_socket}
