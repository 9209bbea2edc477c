"""A TCP proxy that records all bytes, to be searched for data that must not appear.

It knows no protocol. Each connection has two threads with blocking sockets, as in proxy.py.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class RecordingProxy:
    """Listens on a free loopback port; ``with`` starts and ends it.

    Attributes:
        bootstrap_servers: the address for clients.
        to_broker, to_client: all bytes sent in each direction.
    """

    def __init__(self, upstream: str, port: int = 0) -> None:
        host, _, upstream_port = upstream.rpartition(":")
        self._upstream = (host, int(upstream_port))
        self._listener = socket.create_server(("127.0.0.1", port))
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self.bootstrap_servers = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.to_broker = bytearray()
        self.to_client = bytearray()

    def __enter__(self) -> RecordingProxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()

    def cut(self) -> None:
        """End all connections, and refuse new ones."""
        with self._lock:
            sockets = [self._listener, *self._sockets]
        for each in sockets:
            _cut(each)

    def _accept(self) -> None:
        with self._listener, suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                broker = socket.create_connection(self._upstream)
                with self._lock:
                    self._sockets += [client, broker]
                for source, to, record in (
                    (client, broker, self.to_broker),
                    (broker, client, self.to_client),
                ):
                    threading.Thread(
                        target=self._carry, args=(source, to, record), daemon=True
                    ).start()

    def _carry(self, source: socket.socket, to: socket.socket, record: bytearray) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                with self._lock:
                    record += data
                to.sendall(data)
        _cut(to)


def _cut(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
