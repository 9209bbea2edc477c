"""Memory for unsent responses, counted over all connections.

Each wire reports the size of its unsent responses, except file regions that it sends directly. The
bytes of a response that is encoded once for many clients count only once (shared_output.py). While
the total exceeds ``plog.queued.max.response.bytes``, connections with unsent responses do not start
any further requests (connection.py), and connections whose clients do not read are closed
(memory_shortage.py). Clients that read their responses are not affected.

Reactor thread only. Invariant: `used_bytes` is the total size of the responses that belong to only
one connection, and of all shared responses that have not been sent completely.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from plogd.apis.encoded_response import EncodedResponse
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
        self._shared: dict[OpenConnection, tuple[Sequence[EncodedResponse], int]] = {}
        """The shared responses that each connection holds, and the number of their unsent bytes."""
        self._holders: dict[EncodedResponse, int] = {}
        """The number of connections that hold each shared response."""

    def __len__(self) -> int:
        """Return the number of connections with unsent responses."""
        return len(self._unsent)

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
            # Called every time, because a shortage may have ended in between.
            self._on_full()

    def share(
        self, connection: OpenConnection, responses: Sequence[EncodedResponse], nbytes: int
    ) -> None:
        """Record that `nbytes` of the total in the next `count` call belong to `responses`."""
        before, bytes_before = self._shared.pop(connection, ((), 0))
        # `count` adds these bytes to the connection's total, so they are subtracted here. Instead,
        # each shared response is added once, with its whole size.
        self.used_bytes += bytes_before - nbytes
        for response in responses:
            holders = self._holders.get(response, 0)
            if not holders:
                self.used_bytes += response.nbytes
            self._holders[response] = holders + 1
        # After the new holders are added, so that a response that is still held keeps a holder.
        for response in before:
            self._holders[response] -= 1
            if not self._holders[response]:
                del self._holders[response]
                self.used_bytes -= response.nbytes
        if responses:
            self._shared[connection] = responses, nbytes

    def forget(self, connection: OpenConnection) -> None:
        """Remove `connection`, which will not send any more responses."""
        self.share(connection, (), 0)
        self.used_bytes -= self._unsent.pop(connection, 0)

    def largest_first(self) -> list[tuple[OpenConnection, int]]:
        """Return the connections with unsent responses and their sizes, largest first."""
        return sorted(self._unsent.items(), key=lambda item: -item[1])
