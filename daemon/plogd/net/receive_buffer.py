"""The bytes of one connection between the socket and its requests.

All connections read into one shared buffer and their requests are handled right there, so an idle
connection owns no memory and a request is not copied. What is left at the end of a turn cannot stay
in the shared buffer: an unfinished request of up to 64 KiB, or requests that may not start yet, are
kept in a copy of just those bytes; a larger unfinished request moves to a lease of its whole size
(request_memory.py) once some of it is here, and the rest of it is read straight into that.

Who copies what: `target` is where the next bytes go, `received` says how many came, `next_frame`
and `consume` walk the requests, `keep` ends a turn. Reactor thread only; called by connection.py.

Invariant: between two turns nothing here refers to the shared buffer; a lease holds one request.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from plog.errors import PlogError
from plogd.net.request_memory import Lease, MemoryWait, RequestMemory

SHARED_BUFFER_BYTES = 256 * 1024
SMALL_FRAME_BYTES = 64 * 1024
"""Largest unfinished request that is kept as it came; it is copied at most once a read."""
LEASE_FROM_BYTES = 16 * 1024
"""So much of a large request has to be here before memory for the whole of it is reserved. Else
those who send a size and little more would take it from those who send their requests."""
HELD_MAX_BYTES = 64 * 1024
"""How far ahead is read while requests may not start. Not zero: a client that leaves is only
noticed by reading, and its parked request would hold on to whatever it waits for."""
READ_MAX_BYTES = 1 << 20
"""Most that one read takes into a lease, so that a fast sender does not hold up the others."""

_SIZE = struct.Struct(">i")
_NO_BYTES = memoryview(bytearray())


class BadFrameSize(PlogError):
    """The size in front of a request is not one a request may have."""

    def __init__(self, size: int, max_bytes: int) -> None:
        super().__init__(f"a request of {size} bytes (allowed: 1 to {max_bytes})")
        self.size = size


class ReceiveBuffer:
    """What has arrived and is not handled yet. `shared` is the one buffer of all connections.

    Args:
        on_memory: called when the lease that `waits_for_memory` has been granted.
    """

    __slots__ = (
        "_end",
        "_frame_end",
        "_is_own",
        "_lease",
        "_max_frame_bytes",
        "_memory",
        "_on_memory",
        "_place_in_line",
        "_shared",
        "_start",
        "_view",
    )

    def __init__(
        self,
        shared: memoryview,
        memory: RequestMemory,
        *,
        max_frame_bytes: int,
        on_memory: Callable[[], None],
    ) -> None:
        self._shared = shared
        self._memory = memory
        self._max_frame_bytes = max_frame_bytes
        self._on_memory = on_memory
        self._view = shared
        self._start = self._end = self._frame_end = 0
        self._is_own = False
        self._lease: Lease | None = None
        self._place_in_line: MemoryWait | None = None

    @property
    def nbytes(self) -> int:
        """Bytes that have arrived and are not consumed."""
        return self._end - self._start

    @property
    def waits_for_memory(self) -> bool:
        """Whether nothing can be read until another connection gives its lease back."""
        return self._place_in_line is not None

    def head(self) -> bytes | None:
        """The first bytes that are not consumed, eight if they are here; None if not even four."""
        if self.nbytes < 4:
            return None
        return bytes(self._view[self._start : min(self._start + 8, self._end)])

    @property
    def is_empty(self) -> bool:
        """Whether nothing is here, and nothing announced: then there is room in any case."""
        return self._view is self._shared and self._start == self._end

    def may_read(self, *, is_blocked: bool) -> bool:
        """Whether there is room; `is_blocked`: requests may not start, so little is read ahead."""
        if self._lease is not None:
            return self._end < len(self._view)
        if self._place_in_line is not None:
            return False
        return self._end - self._start < (HELD_MAX_BYTES if is_blocked else len(self._shared))

    def target(self, *, is_blocked: bool) -> memoryview:
        """Where the next bytes go; empty if none may be read now."""
        if self._view is self._shared and not is_blocked:
            return self._shared[:]  # Between two turns nothing of ours is in it.
        if self._lease is not None:
            return self._view[self._end : self._end + READ_MAX_BYTES]
        if not self.may_read(is_blocked=is_blocked):
            return _NO_BYTES
        shared, held = self._shared, self._end - self._start
        limit = HELD_MAX_BYTES if is_blocked else len(shared)
        if not held:
            return shared[:limit]
        # What came before joins the new bytes in front of them, so that both are read as one.
        shared[:held] = self._view[self._start : self._end]
        return shared[held:limit]

    def received(self, nbytes: int) -> None:
        """`nbytes` have been read into `target`, which was asked for just before."""
        if self._lease is not None:
            self._end += nbytes
            return
        held = self._end - self._start
        self._view, self._is_own = self._shared, False
        self._start, self._end = 0, held + nbytes

    def next_frame(self) -> memoryview | None:
        """The next request without its size, or None if it is not all here.

        A view into this buffer: release it before `keep`. Raises BadFrameSize.
        """
        body = self._start + 4
        if self._end < body:
            return None
        size: int = _SIZE.unpack_from(self._view, self._start)[0]
        if not 0 < size <= self._max_frame_bytes:
            raise BadFrameSize(size, self._max_frame_bytes)
        self._frame_end = end = body + size
        return self._view[body:end] if end <= self._end else None

    def consume(self) -> None:
        """The request `next_frame` gave last has been handled."""
        self._start = self._frame_end

    def has_frame(self) -> bool:
        """Whether a whole request is here, or a size that `next_frame` will raise for."""
        return self.nbytes >= 4 and self._head_frame_bytes() <= self.nbytes

    def keep(self, *, may_lease: bool = True) -> None:
        """End a turn: what is left moves out of the shared buffer; what is done with is freed.

        `may_lease`: memory for the rest of a large request may be taken now.
        """
        left = self._end - self._start
        if not left:
            if self._view is not self._shared:
                self._clear()
            self._start = self._end = 0
        elif self._lease is None and self._place_in_line is None:
            size = self._head_frame_bytes() if left >= 4 else SMALL_FRAME_BYTES
            is_unfinished = size > left
            is_large = size > SMALL_FRAME_BYTES and left >= LEASE_FROM_BYTES
            if is_unfinished and is_large and may_lease:
                self._lease_for(size)
            elif not self._is_own or (is_unfinished and self._start):
                self._hold()

    def close(self) -> None:
        """Give everything back; the connection is gone."""
        self._clear()
        place, self._place_in_line = self._place_in_line, None
        if place is not None:
            self._memory.leave(place)

    def _head_frame_bytes(self) -> int:
        """Size of the first request with its size field; 0 if that is nonsense."""
        size: int = _SIZE.unpack_from(self._view, self._start)[0]
        return size + 4 if 0 < size <= self._max_frame_bytes else 0

    def _lease_for(self, nbytes: int) -> None:
        lease = self._memory.lease(nbytes)
        if lease is not None:
            self._move_to(lease)
            return
        self._hold()
        self._place_in_line = self._memory.wait(nbytes, self._granted)

    def _granted(self, lease: Lease) -> None:
        self._place_in_line = None
        self._move_to(lease)
        self._on_memory()

    def _move_to(self, lease: Lease) -> None:
        left = self._end - self._start
        lease.view[:left] = self._view[self._start : self._end]
        self._lease, self._view, self._is_own = lease, lease.view, True
        self._start, self._end = 0, left

    def _hold(self) -> None:
        # Writable, as an append writes offsets into the batches it is given.
        self._view = memoryview(bytearray(self._view[self._start : self._end]))
        self._is_own = True
        self._start, self._end = 0, len(self._view)

    def _clear(self) -> None:
        self._view, self._is_own = self._shared, False
        self._start = self._end = 0
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.release()
