"""The base class of the Twisted clients: their reactor, their cluster, and closing."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Any, Self

from twisted.internet.defer import Deferred

from plog.client.faces.method_adapters import (
    EXIT_TIMEOUT_S,
    NoCopy,
    described,
)
from plog.client.network.cluster import Cluster
from plog.client.network.twisted_network import TwistedNetwork
from plog.client.settings import ClientSettings

log = logging.getLogger("plog.client")


class Client(NoCopy):
    """A client for Twisted: its cluster and network, on the caller's reactor.

    ``async with`` closes it, in coroutines that run as Deferreds.
    """

    def __init__(
        self, settings: ClientSettings, reactor: Any, *, auto_create_topics: bool = False
    ) -> None:
        if reactor is None:
            from twisted.internet import reactor  # Only who names none wants the installed one.
        self._settings = settings
        self._network = TwistedNetwork.of(reactor, settings)
        self._cluster = Cluster(self._network, settings, auto_create_topics=auto_create_topics)

    def __repr__(self) -> str:
        return described("plog.twisted", self, self._settings)

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
        except Exception as failure:  # The first one says more.
            log.warning("closing %r after an error failed: %s", self, failure)

    def close(self, timeout_s: float | None = None) -> Deferred[None]:
        """Close the client; harmless when it is closed."""
        return Deferred.fromCoroutine(self._close(timeout_s))

    async def _close(self, timeout_s: float | None) -> None:
        await self._cluster.close()
