"""The elements of large requests in progress, counted over all connections.

A decoded element and its part of the response take up to 500 bytes, a hundred times their size in
the frame. Therefore, the requests that are decoded in slices share a limit: beyond it, only the
oldest continues. The others wait, each holding only its copy of the frame, which counts toward
``queued.max.request.bytes``. A request with few elements never waits.

dispatch.py begins a share for each such request; encoding_memory.py does the counting, here in
elements instead of bytes. Reactor thread only.
"""

from __future__ import annotations

from typing import Final

from plog.wire.api_keys import ApiKey
from plogd.apis.encoding_memory import Share, WorkMemory

MAX_ELEMENTS: Final = 100_000
"""Twice the default of ``plog.request.max.elements``."""
MAX_WAITING_ELEMENTS: Final = 100_000
"""The limit for large fetches that wait for data."""
_FEW_ELEMENTS: Final = 2_000
"""A request with fewer elements continues even if the limit is exceeded."""
_WAITING_KEYS: Final = frozenset((ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP))
"""Requests that wait for other clients. They are counted only while they are decoded; otherwise,
they would block all other requests. The groups in which they wait have their own limits."""


class LargeRequests:
    """The large requests in progress.

    Produces and fetches are counted separately, because their disk may hang.

    Attributes:
        waiting_elements: the elements of large fetches that have waited for data.
    """

    def __init__(self) -> None:
        self._of_disk: dict[int, WorkMemory] = {
            key: WorkMemory(lambda: MAX_ELEMENTS) for key in (ApiKey.PRODUCE, ApiKey.FETCH)
        }
        self._others = WorkMemory(lambda: MAX_ELEMENTS)
        self.waiting_elements = 0

    @property
    def elements(self) -> int:
        """The number of elements that are counted, except those of waiting fetches."""
        memories = (*self._of_disk.values(), self._others)
        return sum(memory.used_bytes for memory in memories)

    def begin(self, api_key: int) -> Share:
        """Return the share of a new request; the caller must release it."""
        return self._of_disk.get(api_key, self._others).begin()


class LargeFetch:
    """The elements of one large Fetch: in progress, or waiting for data.

    A waiting fetch must not keep others from making progress, so it has no share. When its wait
    ends, it needs one again, because its reads and its response take more memory than its elements.
    """

    def __init__(self, requests: LargeRequests, share: Share) -> None:
        self._requests = requests
        self._share = share
        self._elements = share.nbytes
        self._waiting_elements = 0

    def begin_wait(self) -> bool:
        """Release the share until `end_wait`; return False if the fetch must not wait.

        Otherwise, the waiting fetches would exceed `MAX_WAITING_ELEMENTS`.
        """
        if self._requests.waiting_elements + self._elements > MAX_WAITING_ELEMENTS:
            return False
        self._waiting_elements = self._elements
        self._requests.waiting_elements += self._elements
        self._share.release()
        return True

    async def end_wait(self) -> None:
        """Wait until the fetch may make progress."""
        share = self._share = self._requests.begin(ApiKey.FETCH)
        # Counted first: a fetch that continues wakes the next one, which must see these elements.
        share.resize(self._elements)
        while not may_continue(share):
            await share.wait()

    def release(self) -> None:
        """Stop counting the fetch."""
        self._share.release()
        self._requests.waiting_elements -= self._waiting_elements
        self._waiting_elements = 0


def may_continue(share: Share) -> bool:
    """Return whether the next slice may be decoded now; if not, wait for `share`."""
    return share.nbytes < _FEW_ELEMENTS or share.may_continue()


def is_decoded(share: Share, api_key: int) -> None:
    """Stop counting the request if its handler may wait for other clients."""
    if api_key in _WAITING_KEYS:
        share.release()
