"""A consumer's session with ZooKeeper: waiting for the connection, creating parents, and the end.

The session connects when it is first used. Errors of single requests are those of
plog/zookeeper/operations.py; `kafka_error` converts them to errors for the application.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from plog.client.errors import ClosedError, ConnectionFailed, ZooKeeperRejected
from plog.client.network.backoff import timed_out
from plog.client.network.deadline import Deadline
from plog.client.network.ports import Cancelled, Network
from plog.client.zookeeper.ports import ZooKeeperConnection
from plog.error_base import PlogError
from plog.zookeeper.operations import (
    ClientClosed,
    ConnectionLost,
    Create,
    MultiFailed,
    NodeExists,
    NoNode,
    Operation,
    Result,
    SessionExpired,
    SessionState,
    ZooKeeperError,
    parent_of,
)

log = logging.getLogger("plog.client.group")

T = TypeVar("T")


class ZooKeeperSession:
    """The session. It calls `on_state` after each change of its state."""

    def __init__(
        self,
        connection: ZooKeeperConnection,
        network: Network,
        *,
        connection_timeout_s: float,
        on_state: Callable[[SessionState], None],
    ) -> None:
        self.connection = connection
        self.was_connected = False
        """Whether the session has ever been connected."""
        self._network = network
        self._timeout_s = connection_timeout_s
        self._on_state = on_state
        self._is_started = False
        self._is_ending = False
        self._connected = network.signal()
        self._ended = network.signal()

    @property
    def is_connected(self) -> bool:
        """Whether requests reach a server now."""
        return self._connected.is_set

    async def connected(self, deadline: Deadline | None = None) -> None:
        """Wait for the connection, at most ``zookeeper.connection.timeout.ms``.

        Raises ConnectionFailed, and ClosedError after `end`.
        """
        if self._is_ending:
            raise ClosedError("the consumer is closed; create a new one")
        if not self._is_started:
            self._is_started = True
            self.connection.listen(self._changed)
            self.connection.start()
        limit_s = self._timeout_s
        if deadline is not None:
            limit_s = min(limit_s, deadline.left_s)
        if not await self._connected.wait(limit_s):
            raise ConnectionFailed(
                f"cannot connect to ZooKeeper at {self.connection.problem}; start ZooKeeper, or"
                " correct zookeeper.connect"
            )

    def _changed(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self.was_connected = True
            self._connected.set()
        else:
            self._connected.clear()
        self._on_state(state)

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        """Apply all operations, or none."""
        return await self.connection.multi(operations)

    async def ensure(self, path: str) -> None:
        """Create a persistent znode and its parents, unless they exist."""
        try:
            await self.multi([Create(path=path)])
        except MultiFailed as failed:
            if isinstance(failed.error, NodeExists):
                return
            if not isinstance(failed.error, NoNode):
                raise
            await self.ensure(parent_of(path))
            await self.ensure(path)

    async def within(self, deadline: Deadline, coroutine: Coroutine[Any, Any, T], what: str) -> T:
        """Return the result of `coroutine`; cancel it at the deadline and raise RequestTimedOut.

        `what` is for the error, such as ``cannot commit offsets for group g``.
        """
        outcomes: list[tuple[T | None, Exception | None]] = []
        done = self._network.signal()

        async def run() -> None:
            try:
                outcomes.append((await coroutine, None))
            except Cancelled:
                raise
            except Exception as error:
                outcomes.append((None, error))
            done.set()

        task = self._network.spawn(run(), what)
        try:
            if not await done.wait(deadline.wait_s):
                raise timed_out(what, deadline.timeout_s, self.connection.problem)
        finally:
            task.cancel()
        value, error = outcomes[0]
        if error is not None:
            raise error
        return value  # type: ignore[return-value]  # None only if T includes it.

    async def end(self, deadline: Deadline) -> None:
        """End the session, and with it all ephemeral znodes; wait for this until the deadline."""
        self.begin_end()
        await self._ended.wait(deadline.wait_s)

    def begin_end(self) -> None:
        """End the session without waiting; repeated calls have no effect."""
        if self._is_ending:
            return
        self._is_ending = True
        self._connected.clear()
        if self._is_started:
            self._network.spawn(self._end(), "ending the session with ZooKeeper")
        else:
            self._ended.set()

    async def _end(self) -> None:
        await self.connection.close()
        self._ended.set()


def kafka_error(error: ZooKeeperError, what: str) -> PlogError:
    """Return the error for the application; `what` failed because of `error`.

    >>> kafka_error(ZooKeeperError("ZooKeeper rejected the request: NoAuth"), "cannot join group g")
    ZooKeeperRejected('cannot join group g: ZooKeeper rejected the request: NoAuth')
    """
    if isinstance(error, ClientClosed):
        return ClosedError("the consumer is closed; create a new one")
    if isinstance(error, ConnectionLost | SessionExpired):
        return ConnectionFailed(f"{what}: {error}")
    if isinstance(error, MultiFailed):
        error = error.error
    return ZooKeeperRejected(f"{what}: {error}")
