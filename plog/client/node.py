"""One broker as the client knows it: its address, the connection to it, and when to try again."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from plog.client.connection import Connection, log_in, open_connection
from plog.client.endings import AtTheEnd
from plog.client.errors import ConnectionFailed
from plog.client.network import Network
from plog.client.settings import ClientSettings
from plog.errors import KafkaError

if TYPE_CHECKING:
    from plog.client.security import Security

log = logging.getLogger("plog.client")

_JITTER = 0.2
_MAX_DOUBLINGS = 30
_DRAIN_S = 0.01
"""How often to look whether a connection has been answered all it was asked."""


class Node:
    """See the module's text. Many may wait for its connection; one of them opens it."""

    def __init__(
        self,
        network: Network,
        settings: ClientSettings,
        security: Security | None,
        node_id: int,
        host: str,
        port: int,
    ) -> None:
        self.id = node_id
        self.host = host
        self.port = port
        self.next_try_s = 0.0
        """Not before then, after a try that has failed."""
        self._network = network
        self._settings = settings
        self._security = security
        self._connection: Connection | None = None
        self._is_opening = False
        self._opened = network.signal()
        self._failures = 0
        self._last_used_s = 0.0
        self._is_closed = False

    @property
    def open_connection(self) -> Connection | None:
        """The connection, if it is open and its session does not end soon."""
        connection = self._connection
        if connection is None or not connection.is_open:
            return None
        renew_at_s = connection.renew_at_s
        is_over = renew_at_s is not None and self._network.now_s() >= renew_at_s
        return None if is_over else connection

    def use(self) -> Connection | None:
        """The same, to be used now: so it is not idle."""
        self._last_used_s = self._network.now_s()
        return self.open_connection

    async def connected(self) -> Connection:
        """The open connection, or a new one. Raises ConnectionFailed, AuthenticationFailed."""
        while (connection := self.open_connection) is None:
            if self._is_closed:
                raise ConnectionFailed(
                    f"the connection to {self.host}:{self.port} is of no use now"
                )
            if self._is_opening:
                await self._opened.wait()
            elif self._connection is not None and self._connection.is_open:
                await self._renew(self._connection)
            else:
                await self._open()
        self._last_used_s = self._network.now_s()
        return connection

    async def _open(self) -> None:
        settings = self._settings
        self._is_opening = True
        self._opened.clear()
        with AtTheEnd(self._tell_opened):
            try:
                wait_s = self.next_try_s - self._network.now_s()
                if wait_s > 0:
                    await self._network.sleep(wait_s)
                connection = await open_connection(
                    self._network,
                    self.host,
                    self.port,
                    settings=settings,
                    security=self._security,
                    node_id=self.id,
                    timeout_s=self._growing(
                        settings.socket_connection_setup_timeout_ms,
                        settings.socket_connection_setup_timeout_max_ms,
                    ),
                )
                self._failures = 0
                self._connection = connection
                by = settings.security_protocol
                log.debug("connected to %s:%d by %s", self.host, self.port, by)
                if self._is_closed:
                    connection.close()
            except KafkaError as error:
                log.debug("not connected to %s:%d: %s", self.host, self.port, error)
                self._failed()
                raise

    async def _renew(self, connection: Connection) -> None:
        """Log in again on the same connection, when it has been answered all it was asked."""
        self._is_opening = True
        self._opened.clear()
        with AtTheEnd(self._tell_opened):
            try:
                while connection.in_flight and connection.is_open:
                    await self._network.sleep(_DRAIN_S)
                if connection.is_open:
                    await log_in(connection, self._settings, self._network, host=self.host)
            except KafkaError:
                connection.close()
                self._failed()
                raise

    def _tell_opened(self) -> None:
        self._is_opening = False
        self._opened.set()

    def _failed(self) -> None:
        settings = self._settings
        wait_s = self._growing(settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms)
        self._failures = min(self._failures + 1, _MAX_DOUBLINGS)
        self.next_try_s = self._network.now_s() + wait_s

    def _growing(self, first_ms: int, longest_ms: int) -> float:
        """Seconds that double with each failure, a fifth more or less by chance."""
        jitter = 1 + _JITTER * (2 * self._network.random() - 1)
        return min(first_ms * (1 << self._failures), longest_ms) / 1000 * jitter

    def close_if_idle(self, longest_s: float) -> None:
        """Close a connection that nobody has used for so long; a negative number never does."""
        connection = self._connection
        if connection is None or connection.in_flight or longest_s < 0:
            return
        if self._network.now_s() - self._last_used_s > longest_s:
            connection.close()

    def close(self) -> None:
        """Close it for good: whoever waits for it hears ConnectionFailed."""
        self._is_closed = True
        if self._connection is not None:
            self._connection.close()


def security_of(settings: ClientSettings) -> Security | None:
    """What is needed for TLS, if there is to be TLS."""
    if not settings.uses_tls:
        return None
    from plog.client.security import Security  # Only who needs it pays for it.

    return Security.of(settings)
