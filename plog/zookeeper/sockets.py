"""kazoo's handler with plog's TLS, which keeps the cause of the last failed connection.

kazoo calls it on its own thread. kazoo's TLS does not verify host names, so it is not used.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from typing import Final

from kazoo.handlers.threading import SequentialThreadingHandler

from plog.client.errors import TlsFailed
from plog.client.network.tls_context import Security
from plog.client.network.tls_failures import tls_failure

CONNECT_S: Final = 10.0
"""Longest time for opening one connection."""
_SETTING: Final = re.compile(r"(?<![\w.])ssl\.(?=[a-z])")


def with_zookeeper_names(text: str) -> str:
    """Replace the client's names of settings in a message by those of ZooKeeper's settings.

    >>> with_zookeeper_names("cannot read ssl.truststore.location=/ca.pem")
    'cannot read zookeeper.ssl.truststore.location=/ca.pem'
    """
    # For a PEM file, ZooKeeper decrypts the key with the keystore's password.
    return _SETTING.sub("zookeeper.ssl.", text.replace("ssl.key.password", "ssl.keystore.password"))


class Sockets(SequentialThreadingHandler):  # type: ignore[misc]
    """Opens connections, with TLS if `security` is given. `problem` is the last failure, or ''."""

    def __init__(self, security: Security | None) -> None:
        super().__init__()
        self._security = security
        self._hosts: Sequence[tuple[str, int]] = ()
        self._name_by_address: dict[str, str] = {}
        self._untried: set[str] = set()
        self.problem = ""

    @property
    def has_tried_all(self) -> bool:
        """Whether all addresses have failed since the last successful connection."""
        return not self._untried

    def use(self, hosts: Sequence[tuple[str, int]]) -> None:
        """Set the hosts and ports, which `resolve` looks up. This does not block."""
        self._hosts = hosts

    def resolve(self) -> None:
        """Resolve the hosts and store the host name of each address. This may block."""
        # kazoo passes addresses to `create_connection`, but TLS and messages need the names.
        for name, port in self._hosts:
            try:
                found = socket.getaddrinfo(name, port, 0, 0, socket.IPPROTO_TCP)
            except OSError as error:
                self.problem = f"cannot resolve {name}: {error.strerror or error}"
                continue
            for *_, address in found:
                self._name_by_address[str(address[0])] = name
        self._untried = set(self._name_by_address)

    def create_connection(
        self, address: tuple[str, int], timeout: float | None = None, **_: object
    ) -> socket.socket:
        """Return a connected socket. Raises OSError, after which kazoo retries."""
        # The addresses of a host can change, and kazoo resolves them for each attempt.
        if address[0] not in self._name_by_address:
            self.resolve()
        host = self._name_by_address.get(address[0], address[0])
        limit_s = CONNECT_S if timeout is None else min(timeout, CONNECT_S)
        try:
            context = self._security.make_ssl_context() if self._security else None
            connected = socket.create_connection(address[:2], limit_s)
            # As in kazoo's own function.
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if context is not None:
                connected = context.wrap_socket(connected, server_hostname=host)
            self._untried = set(self._name_by_address)
            self.problem = ""
            return connected
        except (OSError, TlsFailed) as error:
            shown = f"{host}:{address[1]}"
            explained = tls_failure(error, address=shown, host=host)
            text = str(explained or getattr(error, "strerror", None) or error)
            self.problem = with_zookeeper_names(text)
            self._untried.discard(address[0])
            raise OSError(self.problem) from error
