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
_FEW_ELEMENTS: Final = 2_000
"""A request with fewer elements continues even if the limit is exceeded."""
_WAITING_KEYS: Final = frozenset((ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP))
"""Requests that wait for other clients. They are counted only while they are decoded; otherwise,
they would block all other requests. The packages in which they wait have their own limits."""


class LargeRequests:
    """The large requests in progress. Produces are counted separately: their disk may hang."""

    def __init__(self) -> None:
        self._produces = WorkMemory(lambda: MAX_ELEMENTS)
        self._others = WorkMemory(lambda: MAX_ELEMENTS)

    @property
    def elements(self) -> int:
        """The number of elements that are counted."""
        return self._produces.used_bytes + self._others.used_bytes

    def begin(self, api_key: int) -> Share:
        """Return the share of a new request; the caller must release it."""
        return (self._produces if api_key == ApiKey.PRODUCE else self._others).begin()


def may_continue(share: Share) -> bool:
    """Return whether the next slice may be decoded now; if not, wait for `share`."""
    return share.nbytes < _FEW_ELEMENTS or share.may_continue()


def is_decoded(share: Share, api_key: int) -> None:
    """Stop counting the request if its handler may wait for other clients."""
    if api_key in _WAITING_KEYS:
        share.release()
