"""The base class of the Twisted clients: it runs the engine on the caller's reactor."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Any, Self

from twisted.internet.defer import Deferred

from plog.client.faces.method_adapters import (
    EXIT_TIMEOUT_S,
    NoCopy,
    client_repr,
)
from plog.client.network.cluster import Cluster
from plog.client.network.twisted_network import TwistedNetwork
from plog.client.settings import ClientSettings

log = logging.getLogger("plog.client")


class Client(NoCopy):
    """A Twisted client: its cluster and network, which run on the caller's reactor.

    Coroutines that run as Deferreds can use ``async with`` to close the client.
    """

    def __init__(
        self, settings: ClientSettings, reactor: Any, *, auto_create_topics: bool = False
    ) -> None:
        if reactor is None:
            # A top-level import would install the default reactor before the application can
            # install another.
            from twisted.internet import reactor
        self._settings = settings
        self._network = TwistedNetwork.of(reactor, settings)
        self._cluster = Cluster(self._network, settings, auto_create_topics=auto_create_topics)

    def __repr__(self) -> str:
        return client_repr("plog.twisted", self, self._settings)

    async def __aenter__(self) -> Self:
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

    def close(self, timeout_s: float | None = None) -> Deferred[None]:
        """Close the client; closing it again has no effect."""
        return Deferred.fromCoroutine(self._close(timeout_s))

    async def _close(self, timeout_s: float | None) -> None:
        await self._cluster.close()
