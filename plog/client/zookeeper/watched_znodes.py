"""Read znodes and keep them until a watch reports a change.

Each znode has at most one pending watch, however often it is read, because only a znode without a
watch is read again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from plog.client.zookeeper.ports import ZooKeeperConnection
from plog.zookeeper.operations import NoNode

_CHILDREN, _DATA = "children", "data"


class WatchedZnodes:
    """The znodes that were read; `on_change` is called after one of them has changed."""

    def __init__(self, connection: ZooKeeperConnection, on_change: Callable[[], None]) -> None:
        self._connection = connection
        self._on_change = on_change
        self._known: dict[tuple[str, str], Any] = {}
        self._watches: dict[tuple[str, str], object] = {}
        """The latest watch of each znode; the events of earlier watches are ignored."""

    def forget(self) -> None:
        """Discard everything, because the connection and its watches are lost."""
        self._known.clear()
        self._watches.clear()

    async def children(self, path: str) -> list[str] | None:
        """Return the names of a znode's children, or None if it does not exist.

        Raises ConnectionLost and SessionExpired.
        """
        found: list[str] | None = await self._read(_CHILDREN, path)
        return found

    async def data(self, path: str) -> bytes | None:
        """Return the data of a znode, or None if it does not exist. Raises the same errors."""
        found: bytes | None = await self._read(_DATA, path)
        return found

    async def _read(self, kind: str, path: str) -> Any:
        key = (kind, path)
        while key not in self._known:
            token = self._watches[key] = object()
            watch = partial(self._changed, key, token)
            try:
                if kind == _CHILDREN:
                    value: Any = await self._connection.children(path, watch)
                else:
                    value, _ = await self._connection.get(path, watch)
            except NoNode:
                # Only this request can watch a znode that does not exist.
                if await self._connection.exists(path, watch) is not None:
                    continue
                value = None
            # After an event, another read must follow, but this value was correct at its time.
            if self._watches.get(key) is not token:
                return value
            self._known[key] = value
        return self._known[key]

    def _changed(self, key: tuple[str, str], token: object) -> None:
        if self._watches.get(key) is token:
            del self._watches[key]
            self._known.pop(key, None)
            self._on_change()
