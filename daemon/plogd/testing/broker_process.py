"""One broker as a child process with a directory of its own, to start, stop, kill and start again.

What the `plog_broker` fixture hands out (plugin.py), and what a program may use without pytest. It
is the broker itself, started as ``python -m plogd`` on a free loopback port, so whatever holds here
holds for an installed one; only the data directory and the ports differ from the defaults.

Not thread-safe: one caller starts and stops; clients may connect from anywhere.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from plogd.testing.ready_socket import NotReadyError, ReadySocket

_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 60.0
_LOG_TAIL_CHARACTERS = 4000


class BrokerFailed(Exception):
    """The broker did not start or did not stop cleanly; the text ends with its last lines."""


class BrokerProcess:
    """A broker below `directory`: ``data/`` is its log.dirs, ``broker.log`` what it printed.

    `settings` have Kafka's names and go before those of `config_file`, a server.properties;
    `environment` is added to ours.

    Attributes:
        bootstrap_servers: ``HOST:PORT`` for clients; the port stays the same over a restart.
        addresses: the same for every listener, in the order of ``listeners``.
        started_in_ms: how long the last start took, from fork to ready.
    """

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        *,
        config_file: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.data_dir = directory / "data"
        self.log_path = directory / "broker.log"
        self.bootstrap_servers = "127.0.0.1:0"
        self.addresses: tuple[str, ...] = ()
        self.started_in_ms = 0.0
        self._settings = dict(settings or {})
        self._config_file = config_file
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._ready_socket: ReadySocket | None = None

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
        assert not self.is_running, "one process at a time"
        self.data_dir.mkdir(parents=True, exist_ok=True)
        # Open until the process ends, which has a last word to say to it.
        self._ready_socket = ReadySocket()
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
                )
            addresses = self._ready_socket.wait(self._process, _START_TIMEOUT_S)
        except NotReadyError as error:
            self.kill()
            raise BrokerFailed(f"the broker is {error}\n{self._log_tail()}") from error
        self.started_in_ms = (time.monotonic() - started) * 1000
        self.addresses = tuple(addresses)
        self.bootstrap_servers = addresses[0]

    def stop(self) -> None:
        """Ask it to stop (SIGTERM) and wait for that. Raises BrokerFailed if it was not clean."""
        process = self._running()
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            self.kill()
            raise BrokerFailed(f"the broker did not stop\n{self._log_tail()}") from error
        self._ended()
        if code != 0:
            raise BrokerFailed(f"the broker stopped with code {code}\n{self._log_tail()}")

    def kill(self) -> None:
        """End it on the spot (SIGKILL): no flush, no clean-shutdown mark."""
        process = self._running()
        process.kill()
        process.wait()
        self._ended()

    def restart(self) -> None:
        """Stop it cleanly if it runs, then start it on the same data and the same port."""
        if self.is_running:
            self.stop()
        self.start()

    def reload(self) -> None:
        """Let it read its settings again (SIGHUP); returns when it has done so."""
        process = self._running()
        assert self._ready_socket is not None, "the broker does not run"
        process.send_signal(signal.SIGHUP)
        self._ready_socket.wait(process, _START_TIMEOUT_S)

    def log_text(self) -> str:
        """All it has printed so far, over all its starts."""
        return self.log_path.read_text(errors="replace")

    def __enter__(self) -> BrokerProcess:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.is_running:
            self.stop()

    def _ended(self) -> None:
        if self._ready_socket is not None:
            self._ready_socket.close()
            self._ready_socket = None

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise BrokerFailed("the broker has not been started")
        return self._process

    def _command(self) -> list[str]:
        settings = {
            "log.dirs": str(self.data_dir),
            "listeners": f"PLAINTEXT://{self.bootstrap_servers}",
            "plog.http.port": "0",
            **self._settings,
        }
        command = [sys.executable, "-m", "plogd"]
        if self._config_file is not None:
            command += ["--config", str(self._config_file)]
        for name, value in settings.items():
            command += ["-o", f"{name}={value}"]
        return command

    def _log_tail(self) -> str:
        return self.log_text()[-_LOG_TAIL_CHARACTERS:]


def _environment(notify_socket: str) -> dict[str, str]:
    """Ours, with the modules this process imports and the socket to report to."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return {**os.environ, "PYTHONPATH": path, "NOTIFY_SOCKET": notify_socket}
