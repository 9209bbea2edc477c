"""The client's view of one broker: its address, its connection and the reconnect backoff."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from plog.client.errors import ConnectionFailed
from plog.client.network.connection import Connection, log_in, open_connection
from plog.client.network.deadline import Deadline
from plog.client.network.ports import Cancelled, Network, Task
from plog.client.settings import ClientSettings
from plog.client.task_completion import TaskCompletion
from plog.errors import KafkaError, PlogError, RequestTimedOut
from plog.wire.schema import WireError

if TYPE_CHECKING:
    from plog.client.network.tls_context import Security

log = logging.getLogger("plog.client")

# As in Kafka: clients that have lost the same broker must not all reconnect at the same time.
_JITTER = 0.2
# After 30 doublings, every delay has reached its maximum.
_MAX_DOUBLINGS = 30
_DRAIN_S = 0.01
"""The interval between checks for whether a connection still has requests in flight."""


class Node:
    """A broker's address and the connection to it, which is opened when a request needs it.

    Any number of calls may wait for the connection, each until its own deadline.
    """

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
        """When the next attempt to connect may start after a failed attempt."""
        self._network = network
        self._settings = settings
        self._security = security
        self._connection: Connection | None = None
        self._is_opening = False
        self._opening: Task | None = None
        self._opened = network.signal()
        self._failure: Exception | None = None
        """Why the last attempt to connect failed; None if it succeeded."""
        self._failures = 0
        self._last_used_s = 0.0
        self._is_closed = False

    @property
    def open_connection(self) -> Connection | None:
        """The connection if it is open and its session is not about to expire, otherwise None."""
        connection = self._connection
        if connection is None or not connection.is_open:
            return None
        # KIP-368: a session that is about to expire must be renewed before the next request.
        renew_at_s = connection.renew_at_s
        is_over = renew_at_s is not None and self._network.now_s() >= renew_at_s
        return None if is_over else connection

    def use(self) -> Connection | None:
        """Return `open_connection` and record its use, so that it is not closed as idle."""
        self._last_used_s = self._network.now_s()
        return self.open_connection

    async def connected(self, deadline: Deadline | None = None) -> Connection:
        """Return the open connection, or open a new one.

        Raises ConnectionFailed or AuthenticationFailed if the connection cannot be opened, and
        RequestTimedOut if it is not open at the `deadline`.
        """
        while (connection := self.open_connection) is None:
            if self._is_closed:
                raise ConnectionFailed(f"the connection to {self.host}:{self.port} was closed")
            if deadline is not None and deadline.is_over:
                raise self._late(deadline)
            # Blocking sockets cannot run tasks, so the caller opens the connection itself.
            if not self._network.runs_tasks:
                await self._open_or_renew(deadline)
                continue
            if not self._is_opening:
                # A separate task opens the connection: a call that times out must not end the
                # attempt for other calls. `spawn` runs the task up to its first wait, so the
                # attempt may already have ended when `spawn` returns.
                self._opening = self._network.spawn(
                    self._open_in_background(), f"connecting to {self.host}:{self.port}"
                )
            if not self._is_opening:
                self._raise_failure()
                continue
            if not await self._opened.wait(None if deadline is None else deadline.wait_s):
                assert deadline is not None
                raise self._late(deadline)
            self._raise_failure()
        self._last_used_s = self._network.now_s()
        return connection

    def _raise_failure(self) -> None:
        if self._failure is not None and self.open_connection is None:
            # Several calls may raise this error. Without this, each raise would lengthen its
            # traceback.
            raise self._failure.with_traceback(None)

    def _late(self, deadline: Deadline) -> Exception:
        """Return the error for a call that has waited for the connection until its deadline."""
        # The error from the last attempt is more useful than a timeout.
        if self._failure is not None:
            return self._failure.with_traceback(None)
        return RequestTimedOut(
            f"cannot connect to {self.host}:{self.port} within {deadline.timeout_s:g} s"
        )

    async def _open_in_background(self) -> None:
        try:
            await self._open_or_renew(None)
        except Cancelled:
            raise
        except Exception as error:
            # `connected` raises the error in each waiting call.
            if not isinstance(error, PlogError | WireError):
                log.exception("unexpected error while connecting to %s:%d", self.host, self.port)

    async def _open_or_renew(self, deadline: Deadline | None) -> None:
        self._is_opening = True
        self._opened.clear()
        # However the attempt ends, the waiters must be woken.
        with TaskCompletion(self._set_opened):
            try:
                if self._connection is not None and self._connection.is_open:
                    await self._renew(self._connection)
                else:
                    await self._open(deadline)
            except Cancelled:
                raise
            except Exception as error:
                self._failure = error
                raise
            self._failure = None

    async def _open(self, deadline: Deadline | None) -> None:
        """Connect, after the reconnect backoff if the last attempt has failed."""
        settings = self._settings
        wait_s = self.next_try_s - self._network.now_s()
        if wait_s > 0:
            # If the next attempt cannot start before the deadline, wait only until the deadline.
            if deadline is not None and deadline.left_s < wait_s:
                await self._network.sleep(deadline.left_s)
                raise self._late(deadline)
            await self._network.sleep(wait_s)
        try:
            connection = await open_connection(
                self._network,
                self.host,
                self.port,
                settings=settings,
                security=self._security,
                node_id=self.id,
                # KIP-601: the time limit grows with each failure.
                timeout_s=self._backoff_s(
                    settings.socket_connection_setup_timeout_ms,
                    settings.socket_connection_setup_timeout_max_ms,
                ),
                deadline=deadline,
            )
        except KafkaError as error:
            log.debug("cannot connect to %s:%d: %s", self.host, self.port, error)
            self._failed()
            raise
        self._failures = 0
        self._connection = connection
        log.debug("connected to %s:%d over %s", self.host, self.port, settings.security_protocol)
        # The node may have been closed while the connection was being opened.
        if self._is_closed:
            connection.close()

    async def _renew(self, connection: Connection) -> None:
        """Authenticate again on the open connection, when it has no requests in flight."""
        try:
            # KIP-368: during authentication, the broker accepts only SASL requests.
            while connection.in_flight and connection.is_open:
                await self._network.sleep(_DRAIN_S)
            if connection.is_open:
                await log_in(connection, self._settings, self._network, host=self.host)
        except KafkaError:
            # The session may have expired; then the next request needs a new connection.
            connection.close()
            self._failed()
            raise

    def _set_opened(self) -> None:
        self._is_opening = False
        self._opened.set()

    def _failed(self) -> None:
        settings = self._settings
        wait_s = self._backoff_s(settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms)
        self._failures = min(self._failures + 1, _MAX_DOUBLINGS)
        self.next_try_s = self._network.now_s() + wait_s

    def _backoff_s(self, first_ms: int, longest_ms: int) -> float:
        """Return a delay in seconds that doubles with each failure and is randomized by 20 %."""
        jitter = 1 + _JITTER * (2 * self._network.random() - 1)
        return min(first_ms * (1 << self._failures), longest_ms) / 1000 * jitter

    def close_if_idle(self, longest_s: float) -> None:
        """Close the connection if it was unused for longer than `longest_s`; never if negative."""
        connection = self._connection
        # A connection with requests in flight is not idle.
        if connection is None or connection.in_flight or longest_s < 0:
            return
        if self._network.now_s() - self._last_used_s > longest_s:
            connection.close()

    def close(self) -> None:
        """Close the node permanently; calls that wait for it fail with ConnectionFailed."""
        self._is_closed = True
        if self._opening is not None:
            self._opening.cancel()
        if self._connection is not None:
            self._connection.close()


def security_of(settings: ClientSettings) -> Security | None:
    """Return the TLS configuration, or None if the settings do not use TLS."""
    if not settings.uses_tls:
        return None
    from plog.client.network.tls_context import Security  # Imported only by clients that use TLS.

    return Security.of(settings)
