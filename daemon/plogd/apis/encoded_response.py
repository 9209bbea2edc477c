"""Encode responses in slices, and encode responses that are shared by many clients only once.

A handler returns a `SharedResponse` if the same bytes also answer other requests. The dispatcher's
`SharedResponses` encodes and keeps these responses; the dispatcher itself encodes all others. A
response larger than ``plog.response.max.bytes`` fails with ResponseTooLarge. Records that are sent
directly from their files do not count toward this size.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

from plog.errors import PolicyViolation
from plog.wire.primitives import Part
from plog.wire.schema import ApiMessage
from plogd.apis.encoding_memory import WorkMemory
from plogd.broker import Broker
from plogd.fair_queue import SLICE, FairQueue
from plogd.ports import Later, spawn
from plogd.waiters import Waiters

_SHARED_BYTES: Final = 8 << 20
"""Maximum total size of shared responses: 50,000 topics in the version that most clients use."""


class ResponseTooLarge(PolicyViolation):
    """The response exceeds ``plog.response.max.bytes``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedResponse:
    """A response that also answers identical requests; see `SharedResponses.get`."""

    key: Hashable
    state: Hashable
    make: Callable[[], ApiMessage]


class EncodedResponse:
    """An encoded response without a header, so that it can be sent to several clients.

    Attributes:
        nbytes: the total size of its parts.
    """

    __slots__ = ("nbytes", "parts")

    def __init__(self, parts: list[Part]) -> None:
        self.parts = parts
        self.nbytes = memory_bytes(parts)


class SharedAnswer(list[Part]):
    """A framed response whose parts, except for the first, belong to an `EncodedResponse`.

    Attributes:
        shared_bytes: the total size of those parts.
    """

    __slots__ = ("response", "shared_bytes")

    def __init__(self, parts: list[Part], response: EncodedResponse) -> None:
        super().__init__(parts)
        self.response = response
        # The first part is the header, which contains the correlation id of a single request.
        self.shared_bytes = memory_bytes(parts[1:])


class SharedResponses:
    """Encoded responses by key, each encoded once per state of the objects that it describes.

    For example, if a hundred clients request all topics at the same time, they wait for a single
    encoding and receive the same bytes.
    """

    def __init__(self, broker: Broker, memory: WorkMemory) -> None:
        self._broker = broker
        self._memory = memory
        self._entries: dict[Hashable, _Shared] = {}
        """Oldest first."""

    async def get(
        self, key: Hashable, state: Hashable, version: int, make: Callable[[], ApiMessage]
    ) -> EncodedResponse:
        """Return ``make()``, encoded in `version`; identical requests have the same `key`.

        If the encoding fails, all requests that wait for it fail, and the next request encodes
        again.
        """
        entry = self._entries.get(key)
        # A response for an older state is never returned: the client may already know the change.
        if entry is not None and entry.state == state:
            return await entry.waiters.wait() if entry.response is None else entry.response
        # Remove the old entry: a dict would otherwise put the new one in its place, not last.
        self._entries.pop(key, None)
        entry = self._entries[key] = _Shared(state)
        # Wait before the encoding starts: if it fails immediately, only waiters get the error.
        outcome = entry.waiters.wait()
        self._start(key, entry, version, make)
        return await outcome

    def _start(
        self, key: Hashable, entry: _Shared, version: int, make: Callable[[], ApiMessage]
    ) -> None:
        async def encode() -> EncodedResponse:
            broker = self._broker
            parts = await encode_in_slices(
                make(),
                version,
                broker.fair_queue,
                self._memory,
                broker.config.plog_response_max_bytes,
            )
            return EncodedResponse(parts)

        # Not awaited by the first request: if its client disconnects, the others still need the
        # result.
        entry.encoding = spawn(encode())
        entry.encoding.then(
            lambda response: self._encoded(entry, response),
            lambda error: self._failed(key, entry, error),
        )

    def _encoded(self, entry: _Shared, response: EncodedResponse) -> None:
        entry.response = response
        # Before the waiters continue, because they may request other responses.
        self._drop_oldest()
        entry.waiters.succeed(response)

    def _drop_oldest(self) -> None:
        """Drop the oldest responses until the rest fit; responses in progress do not count."""
        nbytes = sum(one.nbytes for one in self._entries.values())
        for key, entry in list(self._entries.items()):
            if nbytes <= _SHARED_BYTES:
                return
            if entry.response is not None:
                nbytes -= entry.nbytes
                del self._entries[key]

    def _failed(self, key: Hashable, entry: _Shared, error: Exception) -> None:
        # A request for a newer state may have replaced the entry.
        if self._entries.get(key) is entry:
            del self._entries[key]
        entry.waiters.fail(error)


class _Shared:
    """A shared response, and the requests that wait for its encoding.

    The encoding stops if all of these requests are cancelled.
    """

    __slots__ = ("encoding", "response", "state", "waiters")

    def __init__(self, state: Hashable) -> None:
        self.state = state
        self.encoding: Later[EncodedResponse] | None = None
        self.response: EncodedResponse | None = None
        self.waiters: Waiters[EncodedResponse] = Waiters(self._abandoned)

    def _abandoned(self) -> None:
        if self.encoding is not None:
            self.encoding.cancel()

    @property
    def nbytes(self) -> int:
        """The size of the encoded response in bytes; 0 while it is being encoded."""
        return 0 if self.response is None else self.response.nbytes


def memory_bytes(parts: list[Part]) -> int:
    """Return the size of a response in bytes, excluding records that are sent from files."""
    nbytes = 0
    for part in parts:  # Faster than a generator; this runs for every response.
        if isinstance(part, bytes):
            nbytes += len(part)
    return nbytes


def check_size(nbytes: int, max_bytes: int) -> None:
    """Raise ResponseTooLarge if a response of `nbytes` is too large."""
    if nbytes > max_bytes:
        raise ResponseTooLarge(
            f"the response is larger than plog.response.max.bytes={max_bytes}; request less data"
            " at a time"
        )


async def encode_in_slices(
    response: ApiMessage, version: int, fair_queue: FairQueue, memory: WorkMemory, max_bytes: int
) -> list[Part]:
    """Encode `response`, one slice per turn. Raises ResponseTooLarge."""
    encoding = response.encode_in_slices(version, SLICE)
    share = memory.begin()
    try:
        while True:
            await fair_queue.turn()
            if not share.may_continue():
                # The share is woken during another request's turn, so `continue` waits for an own
                # turn.
                await share.wait()
                continue
            try:
                nbytes = next(encoding)
            except StopIteration as end:
                # `next` returned the size after every slice except the last one, so it is checked
                # here.
                parts: list[Part] = end.value
                check_size(memory_bytes(parts), max_bytes)
                return parts
            # Checked after each slice, so that a response that is too large is abandoned early.
            check_size(nbytes, max_bytes)
            share.resize(nbytes)
    finally:
        share.release()
