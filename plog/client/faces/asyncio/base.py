"""The base class of the asyncio clients: it runs the engine on the running event loop."""

from __future__ import annotations

import asyncio
import logging
import warnings
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from twisted.internet.defer import Deferred

from plog.client.errors import ClosedError, IllegalState
from plog.client.faces.method_adapters import EXIT_TIMEOUT_S, NoCopy, client_repr
from plog.client.network.cluster import Cluster
from plog.client.network.loop_reactor import LoopReactor
from plog.client.network.twisted_network import TwistedNetwork
from plog.client.settings import ClientSettings

log = logging.getLogger("plog.client")

T = TypeVar("T")
Core = TypeVar("Core")


class Client(NoCopy, Generic[Core]):
    """An asyncio client, which creates its engine on first use, in the currently running loop."""

    def __init__(
        self,
        settings: ClientSettings,
        make_core: Callable[[Cluster, TwistedNetwork], Core],
        *,
        auto_create_topics: bool = False,
    ) -> None:
        # The constructor may run before the loop does, so `_make` creates the engine on first use.
        self._settings = settings
        self._make_core = make_core
        self._auto_create_topics = auto_create_topics
        self._made: Core | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_reactor: LoopReactor | None = None
        self._cluster: Cluster | None = None
        self._is_closed = False

    @property
    def _core(self) -> Core:
        if self._made is None:
            self._made = self._make()
        return self._made

    def _make(self) -> Core:
        if self._is_closed:
            raise ClosedError("the client is closed; create a new one")
        self._loop = asyncio.get_running_loop()
        self._loop_reactor = LoopReactor.acquire()
        settings = self._settings
        network = TwistedNetwork.of(self._loop_reactor.reactor, settings)
        self._cluster = Cluster(network, settings, auto_create_topics=self._auto_create_topics)
        return self._make_core(self._cluster, network)

    def _check_loop(self) -> None:
        """Raise IllegalState unless the engine runs in the current loop."""
        # asyncio is not thread-safe: the engine could not wake a task that runs in another loop.
        if self._loop is not None and asyncio.get_running_loop() is not self._loop:
            raise IllegalState(
                f"{self!r} belongs to another event loop, the one in which it was first used;"
                " create a client in each loop"
            )

    def _run(
        self, method: Callable[..., Coroutine[Any, Any, T]], *arguments: Any, **options: Any
    ) -> asyncio.Future[T]:
        core = self._core
        self._check_loop()
        assert self._loop is not None
        return Deferred.fromCoroutine(method(core, *arguments, **options)).asFuture(self._loop)

    async def __aenter__(self) -> Self:
        # Create the engine now, so that errors are raised here and the client belongs to this loop.
        _ = self._core
        return self

    async def __aexit__(
        self, kind: object, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
            return
        try:
            await self.close(EXIT_TIMEOUT_S)
        except Exception as failure:
            # Log this error: raising it would hide the exception that ended the block.
            log.warning("failed to close %r after an error: %s", self, failure)

    def __repr__(self) -> str:
        return client_repr("plog.aio", self, self._settings, "closed" if self._is_closed else "")

    def __del__(self) -> None:
        # If `__init__` failed early, the attribute does not exist.
        if getattr(self, "_made", None) is not None and not self._is_closed:
            warnings.warn(
                f"{self!r} was not closed; await close() or use `async with`",
                ResourceWarning,
                source=self,
                stacklevel=1,
            )

    async def close(self, timeout_s: float | None = None) -> None:
        """Close the client; closing it again has no effect."""
        if self._is_closed:
            return
        self._check_loop()
        # Set the flag before waiting, so that a concurrent call to `close` has no effect.
        self._is_closed = True
        # A client that was never used has no engine to close.
        if self._made is None:
            return
        assert self._cluster is not None and self._loop_reactor is not None
        try:
            await self._close_core(timeout_s)
        finally:
            # Even after an error, release the reactor: the loop's clients share it, and it counts
            # them to find out when to stop.
            await self._cluster.close()
            await self._loop_reactor.release()

    async def _close_core(self, timeout_s: float | None) -> None:
        """Close the engine's client object, if it needs to be closed."""
