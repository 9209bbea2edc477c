"""What the blocking clients have in common: a network on the private reactor, and an end."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeVar

from plog.client.cluster import Cluster
from plog.client.errors import ClosedError, ForkedError
from plog.client.facing import NoCopy, described
from plog.client.private_reactor import PrivateReactor
from plog.client.settings import ClientSettings
from plog.client.twisted_network import TwistedNetwork

T = TypeVar("T")


class Client(NoCopy):
    """What the three have in common: a network on the private reactor, and an end."""

    def __init__(self, settings: ClientSettings, *, auto_create_topics: bool = False) -> None:
        self._settings = settings
        self._private = PrivateReactor.current()
        self._network = TwistedNetwork.of(self._private.reactor, settings)
        self._cluster = Cluster(self._network, settings, auto_create_topics=auto_create_topics)
        self._is_closed = self._is_forked = False
        self._private.add(self)

    def _run(
        self, function: Callable[..., Coroutine[Any, Any, T]], *arguments: Any, **options: Any
    ) -> T:
        self._check()
        return self._private.run(function, *arguments, **options)

    def forked(self) -> None:
        """In the child of a fork: nothing of this client works here."""
        self._is_forked = True

    def _check(self) -> None:
        if self._is_forked:
            raise ForkedError("the client was made before a fork: make a new one in the child")
        if self._is_closed:
            raise ClosedError("the client is closed: make a new one")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "of before a fork" if self._is_forked else "closed" if self._is_closed else ""
        return described("plog", self, self._settings, state)

    def close(self) -> None:
        """End it; harmless when it has ended."""
        raise NotImplementedError
