"""The base class of the blocking clients: it runs the engine on the private reactor."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from plog.client.errors import ClosedError, ForkedError
from plog.client.faces.method_adapters import EXIT_TIMEOUT_S, NoCopy, client_repr
from plog.client.network.cluster import Cluster
from plog.client.network.private_reactor import PrivateReactor
from plog.client.network.twisted_network import TwistedNetwork
from plog.client.settings import ClientSettings

log = logging.getLogger("plog.client")

T = TypeVar("T")


class Client(NoCopy):
    """A blocking client: its cluster and network, which run on the process's private reactor."""

    def __init__(self, settings: ClientSettings, *, auto_create_topics: bool = False) -> None:
        self._settings = settings
        # All blocking clients of a process share one reactor and its thread.
        self._private = PrivateReactor.current()
        self._network = TwistedNetwork.of(self._private.reactor, settings)
        self._cluster = Cluster(self._network, settings, auto_create_topics=auto_create_topics)
        self._is_closed = self._is_forked = False
        # In the child of a fork, the private reactor calls `_forked` of each registered client.
        self._private.add(self)

    def _run(
        self, function: Callable[..., Coroutine[Any, Any, T]], *arguments: Any, **options: Any
    ) -> T:
        self._check()
        return self._private.run(function, *arguments, **options)

    def _forked(self) -> None:
        """Mark this copy, in the child of a fork, as unusable."""
        self._is_forked = True

    def _check(self) -> None:
        if self._is_forked:
            raise ForkedError(
                "the client was created before a fork; create a new one in the child process"
            )
        if self._is_closed:
            raise ClosedError("the client is closed; create a new one")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: object, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        try:
            self.close(EXIT_TIMEOUT_S)
        except Exception as failure:
            # Log this error: raising it would hide the exception that ended the block.
            log.warning("failed to close %r after an error: %s", self, failure)

    def __repr__(self) -> str:
        state = "created before a fork" if self._is_forked else "closed" if self._is_closed else ""
        return client_repr("plog", self, self._settings, state)

    def close(self, timeout_s: float | None = None) -> None:
        """Close the client; closing it again has no effect."""
        raise NotImplementedError
