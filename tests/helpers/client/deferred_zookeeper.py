"""A client of `MockZooKeeper` with the port of plog/client/zookeeper/ports.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from plog.zookeeper.deferred_result import DeferredResult
from plog.zookeeper.operations import Operation, SessionState
from plogd.ports import Later
from plogd.testing.mock_zookeeper import MockZooKeeper, MockZooKeeperClient


class DeferredZooKeeper:
    """A client whose results are Deferreds; `client` is the client of the double after `start`."""

    def __init__(self, ensemble: MockZooKeeper, session_timeout_ms: int = 6000) -> None:
        self.client: MockZooKeeperClient | None = None
        self._ensemble = ensemble
        self._session_timeout_ms = session_timeout_ms
        self._listeners: list[Callable[[SessionState], None]] = []

    @property
    def started(self) -> MockZooKeeperClient:
        """The client of the double."""
        assert self.client is not None, "the consumer has not connected yet"
        return self.client

    @property
    def session_id(self) -> int:
        return 0 if self.client is None else self.client.session_id

    @property
    def problem(self) -> str:
        return "mock:2181: no response"

    def listen(self, on_state: Callable[[SessionState], None]) -> None:
        self._listeners.append(on_state)

    def start(self) -> None:
        self.client = self._ensemble.connect(session_timeout_ms=self._session_timeout_ms)
        for listener in self._listeners:
            self.client.listen(listener)

    def get(self, path: str, watch: Callable[[], None] | None = None) -> DeferredResult:
        return _deferred(self.started.get(path, watch))

    def exists(self, path: str, watch: Callable[[], None] | None = None) -> DeferredResult:
        return _deferred(self.started.exists(path, watch))

    def children(self, path: str, watch: Callable[[], None] | None = None) -> DeferredResult:
        return _deferred(self.started.children(path, watch))

    def multi(self, operations: Sequence[Operation]) -> DeferredResult:
        return _deferred(self.started.multi(operations))

    def sync(self) -> DeferredResult:
        return _deferred(self.started.sync())

    def close(self) -> DeferredResult:
        return _deferred(self.started.close())


def _deferred(later: Later[Any]) -> DeferredResult:
    result = DeferredResult()
    later.then(result.succeed, result.fail)
    return result
