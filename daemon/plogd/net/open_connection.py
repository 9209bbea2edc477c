"""The part of `Connection` that connections.py, memory_shortage.py and response_memory.py use.

It is a Protocol because connection.py, which implements it, imports connections.py.
"""

from __future__ import annotations

from typing import Protocol


class OpenConnection(Protocol):
    """An open client connection that can be counted, watched and closed."""

    host: str
    """The client's address."""

    @property
    def sent_bytes(self) -> int:
        """Return the number of response bytes that the client has accepted."""
        ...

    @property
    def arriving(self) -> tuple[int, int] | None:
        """Return (bytes received, size) of an incomplete request that occupies memory.

        Returns None if there is no such request, or if the broker is not reading it now.
        """
        ...

    def sweep(self, now_ms: float) -> None:
        """Close the connection if it is idle or too slow, or if its client has disconnected."""
        ...

    def close_slow(self, why_now: str) -> None:
        """Close the connection because its request arrives too slowly."""
        ...

    def close_unread(self, nbytes: int) -> None:
        """Close the connection because its client does not read `nbytes` of responses."""
        ...

    def finish(self, reason: str) -> None:
        """Do not start any more requests; close the connection after all responses are sent."""
        ...

    def abort(self, reason: str) -> None:
        """Close the connection without sending the pending responses."""
        ...
