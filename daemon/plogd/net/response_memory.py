"""Memory for unsent responses, counted over all connections.

Each wire reports the size of its unsent responses, without the file regions that it sends directly.
Beyond ``plog.queued.max.response.bytes``, no further request starts on a connection with unsent
responses (connection.py), and connections whose clients do not read are closed
(memory_shortage.py). Clients that read their responses are not affected.

Reactor thread only. Invariant: `used_bytes` is the sum over all connections.
"""

from __future__ import annotations

from collections.abc import Callable

from plogd.net.open_connection import OpenConnection


class ResponseMemory:
    """The memory of one broker for unsent responses.

    Args:
        on_full: called whenever the limit is exceeded.

    Attributes:
        limit_bytes: may be changed at any time.
        used_bytes: the size of all unsent responses.
    """

    def __init__(self, limit_bytes: int, on_full: Callable[[], None]) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._on_full = on_full
        self._unsent: dict[OpenConnection, int] = {}

    @property
    def is_full(self) -> bool:
        """Return whether the limit is exceeded."""
        return self.used_bytes > self.limit_bytes

    def count(self, connection: OpenConnection, nbytes: int) -> None:
        """Set the size of the unsent responses of `connection` to `nbytes`."""
        self.used_bytes += nbytes - self._unsent.get(connection, 0)
        if nbytes:
            self._unsent[connection] = nbytes
        else:
            self._unsent.pop(connection, None)
        if self.used_bytes > self.limit_bytes:
            self._on_full()

    def forget(self, connection: OpenConnection) -> None:
        """Remove `connection`, which sends no more responses."""
        self.used_bytes -= self._unsent.pop(connection, 0)

    def largest_first(self) -> list[tuple[OpenConnection, int]]:
        """Return the connections with unsent responses and their sizes, largest first."""
        return sorted(self._unsent.items(), key=lambda item: -item[1])
