"""What connections.py, memory_shortage.py and response_memory.py need of a client's connection.

connection.py implements it, and imports connections.py, which is why they have only this.
"""

from __future__ import annotations

from typing import Protocol


class OpenConnection(Protocol):
    """An open `Connection`, as those that count, watch and close connections see it."""

    host: str
    """The client's address."""

    @property
    def sent_bytes(self) -> int:
        """Bytes of responses that the client has accepted."""
        ...

    @property
    def arriving(self) -> tuple[int, int] | None:
        """(bytes received so far, size) of a request that occupies memory and is up to the client.

        None if there is none, or if the broker does not read or start it.
        """
        ...

    def sweep(self, now_ms: float) -> None:
        """Close the connection if it is idle, too slow, or its client has left."""
        ...

    def close_slow(self, why_now: str) -> None:
        """Close the connection because its request arrives too slowly."""
        ...

    def close_unread(self, nbytes: int) -> None:
        """Close the connection because its client does not read `nbytes` of responses."""
        ...

    def finish(self, reason: str) -> None:
        """Start no more requests, and close the connection when all responses have been sent."""
        ...

    def abort(self, reason: str) -> None:
        """Cut the connection."""
        ...
