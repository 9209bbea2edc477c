"""Memory for responses that wait to be sent, counted over all connections.

Each wire reports how many bytes of responses it holds, without the regions of files that it sends
directly. Beyond ``plog.queued.max.response.bytes`` no further request starts on a connection that
has responses to send (connection.py), and clients that do not read theirs lose their connections
(memory_shortage.py). Clients that read are served all the time.

Reactor thread only. Invariant: `used_bytes` is the sum of what is counted.
"""

from __future__ import annotations

from collections.abc import Callable

from plogd.net.open_connection import OpenConnection


class ResponseMemory:
    """The budget of a broker.

    Args:
        on_full: called when the bound has just been exceeded.

    Attributes:
        limit_bytes: may be changed at any time.
        used_bytes: what waits to be sent now.
    """

    def __init__(self, limit_bytes: int, on_full: Callable[[], None]) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._on_full = on_full
        self._unsent: dict[OpenConnection, int] = {}

    @property
    def is_full(self) -> bool:
        """Whether more waits to be sent than there should."""
        return self.used_bytes > self.limit_bytes

    def count(self, connection: OpenConnection, nbytes: int) -> None:
        """`connection` holds `nbytes` now."""
        self.used_bytes += nbytes - self._unsent.get(connection, 0)
        if nbytes:
            self._unsent[connection] = nbytes
        else:
            self._unsent.pop(connection, None)
        if self.used_bytes > self.limit_bytes:
            self._on_full()

    def forget(self, connection: OpenConnection) -> None:
        """`connection` sends no more."""
        self.used_bytes -= self._unsent.pop(connection, 0)

    def largest_first(self) -> list[tuple[OpenConnection, int]]:
        """The connections that hold something, and how much."""
        return sorted(self._unsent.items(), key=lambda item: -item[1])
