"""The part of a connection's unsent output that other connections also send.

A response that is encoded once for many clients (apis/encoded_response.py) shares its bytes among
the queues of all their connections, so it must be counted only once. Each wire notes where such a
response ends in its stream, and reports to `ResponseMemory` how many of its unsent bytes belong to
shared responses. The bytes stay in memory until the last of these connections has sent its last
byte.

Owned by a wire; reactor thread only.
"""

from __future__ import annotations

from plogd.apis.encoded_response import EncodedResponse, SharedAnswer
from plogd.net.open_connection import OpenConnection
from plogd.net.response_memory import ResponseMemory


class SharedOutput:
    """The shared responses that one connection has not sent completely.

    Attributes:
        unsent: each response with the positions in the stream where it starts and ends.
    """

    __slots__ = ("_memory", "unsent")

    def __init__(self, memory: ResponseMemory) -> None:
        self._memory = memory
        self.unsent: list[tuple[EncodedResponse, int, int]] = []

    def add(self, answer: SharedAnswer, end_position: int) -> None:
        """Record a response that ends at `end_position` of the connection's stream."""
        # Positions instead of sizes, because other responses can precede and follow it in the
        # stream.
        self.unsent.append((answer.response, end_position - answer.shared_bytes, end_position))

    def clear(self, connection: OpenConnection) -> None:
        """Forget all shared responses, because nothing more is sent."""
        self.unsent = []
        self._memory.share(connection, (), 0)

    def report(self, connection: OpenConnection, sent_bytes: int) -> None:
        """Report the shared bytes after `sent_bytes`; call this before `ResponseMemory.count`."""
        unsent = [one for one in self.unsent if one[2] > sent_bytes]
        nbytes = sum(end - max(start, sent_bytes) for _, start, end in unsent)
        self.unsent = unsent
        self._memory.share(connection, [response for response, _, _ in unsent], nbytes)
