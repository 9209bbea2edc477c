"""Wait until a child process reports that it is ready, without polling a port or a log.

The child gets a ``NOTIFY_SOCKET``, as systemd passes it to services. This is a unix datagram socket
to which the child writes ``READY=1`` and ``STATUS=listening on HOST:PORT[,HOST:PORT...]``. The wait
ends when both have arrived or the child has exited, whichever happens first.

Used by broker_process.py. Source: sd_notify(3), pidfd_open(2).
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import subprocess
import tempfile
import time

_LISTENING = "listening on "
_LONGEST_DATAGRAM_BYTES = 65536


class NotReadyError(Exception):
    """Raised if the process exits or times out before it is ready."""


class ReadySocket:
    """The receiving end; `path` is the child's ``NOTIFY_SOCKET``."""

    def __init__(self) -> None:
        # The directory has a short path, because the path of a unix socket is limited to 108 bytes.
        self._directory = tempfile.TemporaryDirectory(prefix="plog-")
        self.path = os.path.join(self._directory.name, "notify")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.path)
        # `drain` reads until the socket is empty.
        self._socket.setblocking(False)

    def close(self) -> None:
        """Close the socket and remove its directory."""
        self._socket.close()
        self._directory.cleanup()

    def wait(self, process: subprocess.Popen[bytes], timeout_s: float) -> list[str]:
        """Wait for ``READY=1``; return the ``HOST:PORT`` addresses of the process.

        Raises:
            NotReadyError: the process has exited, or `timeout_s` has passed.
        """
        fields: dict[str, str] = {}
        deadline = time.monotonic() + timeout_s
        # It becomes readable when the process exits, so one select waits for both events.
        pidfd = os.pidfd_open(process.pid)
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self._socket, selectors.EVENT_READ)
                selector.register(pidfd, selectors.EVENT_READ)
                while not _is_complete(fields):
                    remaining_s = deadline - time.monotonic()
                    if remaining_s <= 0:
                        raise NotReadyError(
                            f"not ready after {timeout_s:g} s; it reported {fields}"
                        )
                    ready = [key.fileobj for key, _ in selector.select(remaining_s)]
                    # Messages first: the process may have exited after it sent them.
                    if self._socket in ready:
                        fields.update(self._receive())
                    elif pidfd in ready:
                        raise NotReadyError(
                            f"not ready: the process exited with code {process.wait()} and reported"
                            f" {fields}"
                        )
        finally:
            os.close(pidfd)
        return addresses_in(fields["STATUS"])

    def wait_for_exit(self, process: subprocess.Popen[bytes]) -> int:
        """Discard messages until the process has exited; return its exit code."""
        pidfd = os.pidfd_open(process.pid)
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self._socket, selectors.EVENT_READ)
                selector.register(pidfd, selectors.EVENT_READ)
                while all(key.fileobj != pidfd for key, _ in selector.select()):
                    self.drain()
        finally:
            os.close(pidfd)
        return process.wait()

    def drain(self) -> None:
        """Discard the messages received so far."""
        # Otherwise the socket would fill up, and the next messages would be lost.
        with contextlib.suppress(BlockingIOError):
            while True:
                self._receive()

    def wait_for(self, field: str, value: str, timeout_s: float) -> None:
        """Wait until the process reports ``field=value``. Raises NotReadyError."""
        deadline = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            while selector.select(max(deadline - time.monotonic(), 0.0)):
                if self._receive().get(field) == value:
                    return
        raise NotReadyError(f"it did not report {field}={value} within {timeout_s:g} s")

    def _receive(self) -> dict[str, str]:
        text = self._socket.recv(_LONGEST_DATAGRAM_BYTES).decode()
        return {name: value for name, _, value in (x.partition("=") for x in text.splitlines())}


def addresses_in(status: str) -> list[str]:
    """Return the addresses in the status of a broker that serves requests.

    >>> addresses_in("listening on 127.0.0.1:9092,[::1]:9092; 3 partitions, 0 connections")
    ['127.0.0.1:9092', '[::1]:9092']
    """
    return status.removeprefix(_LISTENING).partition(";")[0].split(",")


def _is_complete(fields: dict[str, str]) -> bool:
    """Return whether both messages have arrived, in one datagram or in either order."""
    return fields.get("READY") == "1" and fields.get("STATUS", "").startswith(_LISTENING)
