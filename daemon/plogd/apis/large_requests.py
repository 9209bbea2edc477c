"""Limits on the elements of large requests in progress, counted over all connections.

A decoded element and its part of the response take up to 500 bytes, a hundred times their size in
the frame. Therefore, the requests that are decoded in slices share a limit. If it is exceeded, only
the oldest request continues. The others wait, each holding only its copy of the frame, which counts
toward ``queued.max.request.bytes``. A request with few elements never waits.

dispatch.py begins a share for each request that it decodes in slices. The classes in
encoding_memory.py do the counting; here, their `nbytes` are numbers of elements. Reactor thread
only.
"""

from __future__ import annotations

from typing import Final

from plog.wire.api_keys import ApiKey
from plogd.apis.encoding_memory import Share, WorkMemory

MAX_ELEMENTS: Final = 100_000
"""Twice the default of ``plog.request.max.elements``."""
MAX_WAITING_ELEMENTS: Final = 100_000
"""Maximum total number of elements in large fetches that wait for data."""
_FEW_ELEMENTS: Final = 2_000
"""A request continues even if the limit is exceeded while it has fewer elements than this."""
_WAITING_KEYS: Final = frozenset((ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP))
"""APIs whose requests wait for other clients. Their elements are counted only while they are
decoded; otherwise, waiting requests would block all others. Groups have their own limits."""


class LargeRequests:
    """The large requests in progress.

    Attributes:
        waiting_elements: the elements of large fetches that wait, or have waited, for data.
    """

    def __init__(self) -> None:
        # Counted separately: if the disk of a Produce or Fetch hangs, it must not block other APIs.
        self._of_disk: dict[int, WorkMemory] = {
            key: WorkMemory(lambda: MAX_ELEMENTS) for key in (ApiKey.PRODUCE, ApiKey.FETCH)
        }
        self._others = WorkMemory(lambda: MAX_ELEMENTS)
        self.waiting_elements = 0

    @property
    def elements(self) -> int:
        """Number of counted elements, excluding those of waiting fetches."""
        memories = (*self._of_disk.values(), self._others)
        return sum(memory.used_bytes for memory in memories)

    def begin(self, api_key: int) -> Share:
        """Return a share for a new request; the caller must release it."""
        return self._of_disk.get(api_key, self._others).begin()


class LargeFetch:
    """The elements of one large Fetch, which is either in progress or waiting for data."""

    def __init__(self, requests: LargeRequests, share: Share) -> None:
        self._requests = requests
        self._share = share
        # Stored, because `begin_wait` releases the share.
        self._elements = share.nbytes
        self._waiting_elements = 0

    def begin_wait(self) -> bool:
        """Release the share until `end_wait`; return False if the fetch must not wait.

        A fetch must not wait if the waiting fetches would then exceed `MAX_WAITING_ELEMENTS`.
        """
        if self._requests.waiting_elements + self._elements > MAX_WAITING_ELEMENTS:
            return False
        self._waiting_elements = self._elements
        self._requests.waiting_elements += self._elements
        # A fetch can wait for a long time, during which it must not block other large fetches.
        self._share.release()
        return True

    async def end_wait(self) -> None:
        """Wait until the fetch may continue."""
        # A new share, because the reads and the response take more memory than the elements.
        share = self._share = self._requests.begin(ApiKey.FETCH)
        # Counted before the check: a fetch that continues wakes the next fetch, which must take
        # these elements into account.
        share.resize(self._elements)
        while not may_continue(share):
            await share.wait()

    def release(self) -> None:
        """Stop counting the fetch."""
        self._share.release()
        # Only here, not in `end_wait`: the elements stay in memory until the response is complete.
        self._requests.waiting_elements -= self._waiting_elements
        self._waiting_elements = 0


def may_continue(share: Share) -> bool:
    """Return whether the next slice may be decoded now; if not, await `Share.wait`."""
    return share.nbytes < _FEW_ELEMENTS or share.may_continue()


def is_decoded(share: Share, api_key: int) -> None:
    """Stop counting the request if its handler may wait for other clients."""
    if api_key in _WAITING_KEYS:
        share.release()
