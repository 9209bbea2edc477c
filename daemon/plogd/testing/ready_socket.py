"""Learn from a child process itself when it is ready, without polling a port or a log.

The child is given a ``NOTIFY_SOCKET``, as systemd gives it to its services: a unix datagram socket
to which it writes ``READY=1`` and ``STATUS=listening on HOST:PORT[,HOST:PORT...]``. The wait ends
at the moment the datagrams are there, or the child has exited, whichever comes first.

Used by broker_process.py. Source: sd_notify(3), pidfd_open(2).
"""

from __future__ import annotations

import os
import selectors
import socket
import subprocess
import tempfile
import time

_LISTENING = "listening on "
_LONGEST_DATAGRAM_BYTES = 65536


class NotReadyError(Exception):
    """The process ended, or took too long, before it said that it is ready."""


class ReadySocket:
    """The receiving end; `path` is what the child finds in ``NOTIFY_SOCKET``."""

    def __init__(self) -> None:
        # A short directory of its own: the path of a unix socket may not be longer than 108 bytes.
        self._directory = tempfile.TemporaryDirectory(prefix="plog-")
        self.path = os.path.join(self._directory.name, "notify")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.path)
        self._socket.setblocking(False)

    def close(self) -> None:
        """Take the socket and its directory away again."""
        self._socket.close()
        self._directory.cleanup()

    def wait(self, process: subprocess.Popen[bytes], timeout_s: float) -> list[str]:
        """Wait for ``READY=1``; the ``HOST:PORT`` addresses the process then listens on.

        Raises:
            NotReadyError: the process has exited, or `timeout_s` has passed.
        """
        fields: dict[str, str] = {}
        deadline = time.monotonic() + timeout_s
        pidfd = os.pidfd_open(process.pid)
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self._socket, selectors.EVENT_READ)
                selector.register(pidfd, selectors.EVENT_READ)
                while not _is_complete(fields):
                    remaining_s = deadline - time.monotonic()
                    if remaining_s <= 0:
                        raise NotReadyError(f"not ready after {timeout_s:g} s, said {fields}")
                    ready = [key.fileobj for key, _ in selector.select(remaining_s)]
                    if self._socket in ready:
                        fields.update(self._receive())
                    elif pidfd in ready:
                        raise NotReadyError(f"exited with code {process.wait()}, said {fields}")
        finally:
            os.close(pidfd)
        return fields["STATUS"].removeprefix(_LISTENING).split(",")

    def _receive(self) -> dict[str, str]:
        text = self._socket.recv(_LONGEST_DATAGRAM_BYTES).decode()
        return {name: value for name, _, value in (x.partition("=") for x in text.splitlines())}


def _is_complete(fields: dict[str, str]) -> bool:
    """Whether both messages have come; they may share a datagram and come in either order."""
    return fields.get("READY") == "1" and fields.get("STATUS", "").startswith(_LISTENING)
