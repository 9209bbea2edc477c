"""The bytes of one connection between the socket and its requests.

All connections read into one shared buffer and their requests are handled right there, so an idle
connection owns no memory and a request is not copied. What is left at the end of a turn cannot stay
in the shared buffer: an unfinished request of up to 64 KiB, or requests that may not start yet, are
kept in a copy of just those bytes. A larger unfinished request moves to a lease once some of it is
here, and the rest of it is read straight into that; the lease grows as it fills
(request_memory.py). While all copies together occupy too much, connections read little ahead, and
smaller requests take leases, too.

Who copies what: `target` is where the next bytes go, `received` says how many came, `next_frame`
and `consume` walk the requests, `keep` ends a turn. Reactor thread only; called by connection.py.

Invariant: between two turns nothing here refers to the shared buffer; a lease holds one request.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from plog.errors import PlogError
from plogd.net.request_memory import Lease, RequestMemory

SHARED_BUFFER_BYTES = 256 * 1024
SMALL_FRAME_BYTES = 64 * 1024
"""Largest unfinished request that is kept as it came; it is copied at most once a read."""
LEASE_FROM_BYTES = 16 * 1024
"""So much of a large request has to be here before it gets a lease: one step of it is larger."""
HELD_MAX_BYTES = 64 * 1024
"""How far ahead is read while requests may not start. Not zero: a client that leaves is only
noticed by reading, and its parked request would hold on to whatever it waits for."""
SCARCE_READ_BYTES = 4 * 1024
"""Most that is read without a lease while the copies of all connections occupy too much."""
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
        host: whose bytes they are; the memory is shared among hosts.
        on_memory: called when a lease that had to wait for memory has grown.
    """

    __slots__ = (
        "_end",
        "_frame_end",
        "_held_bytes",
        "_host",
        "_is_own",
        "_lease",
        "_max_frame_bytes",
        "_memory",
        "_on_memory",
        "_shared",
        "_start",
        "_view",
    )

    def __init__(
        self,
        shared: memoryview,
        memory: RequestMemory,
        *,
        host: str,
        max_frame_bytes: int,
        on_memory: Callable[[], None],
    ) -> None:
        self._shared = shared
        self._memory = memory
        self._host = host
        self._max_frame_bytes = max_frame_bytes
        self._on_memory = on_memory
        self._view = shared
        self._start = self._end = self._frame_end = 0
        self._held_bytes = 0  # What `memory` counts for a copy of ours.
        self._is_own = False
        self._lease: Lease | None = None

    @property
    def nbytes(self) -> int:
        """Bytes that have arrived and are not consumed."""
        return self._end - self._start

    @property
    def waits_for_memory(self) -> bool:
        """Whether nothing can be read until another connection releases its lease."""
        return self._lease is not None and self._lease.is_waiting

    @property
    def leased_bytes(self) -> int:
        """What this connection takes from the memory for large requests."""
        return 0 if self._lease is None else self._lease.charged_bytes

    @property
    def frame_bytes(self) -> int:
        """Size of the first request, as announced; 0 if it is unknown or wrong."""
        return self._head_frame_bytes() if self.nbytes >= 4 else 0

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
        lease = self._lease
        if lease is not None:
            return not lease.is_waiting and self._end < len(self._view)
        return self._end - self._start < self._room(is_blocked=is_blocked)

    def target(self, *, is_blocked: bool) -> memoryview:
        """Where the next bytes go; empty if none may be read now."""
        shared, memory = self._shared, self._memory
        is_scarce = memory.held_bytes > memory.held_limit_bytes
        if self._view is shared and not is_blocked and not is_scarce:
            return shared[:]  # Between two turns nothing of ours is in it.
        if not self.may_read(is_blocked=is_blocked):
            return _NO_BYTES
        if self._lease is not None:
            return self._view[self._end : self._end + READ_MAX_BYTES]
        held, room = self._end - self._start, self._room(is_blocked=is_blocked)
        # What came before joins the new bytes in front of them, so that both are read as one.
        shared[:held] = self._view[self._start : self._end]
        return shared[held:room]

    def received(self, nbytes: int) -> None:
        """`nbytes` have been read into `target`, which was asked for just before."""
        if self._lease is not None:
            self._end += nbytes
            return
        held = self._end - self._start
        self._view, self._is_own = self._shared, False
        self._start, self._end = 0, held + nbytes
        if self._held_bytes:
            self._count(0)

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

    def keep(self, may_grow: Callable[[], bool] = lambda: True) -> None:
        """End a turn: what is left moves out of the shared buffer; what is done with is freed.

        `may_grow`: whether more memory for an unfinished request may be taken now.
        """
        left = self._end - self._start
        if not left:
            if self._view is not self._shared:
                self._clear()
            self._start = self._end = 0
        elif self._lease is not None:
            lease = self._lease
            is_full = self._end == len(self._view)
            if is_full and not lease.is_waiting and not lease.is_complete and may_grow():
                self._grow(lease)
        else:
            size = self._head_frame_bytes() if left >= 4 else SMALL_FRAME_BYTES
            is_unfinished = size > left
            if is_unfinished and self._needs_lease(size, left) and may_grow():
                self._lease = self._memory.lease(size, self._host, self._granted)
                self._grow(self._lease)
            elif not self._is_own or (is_unfinished and self._start):
                self._hold()

    def close(self) -> None:
        """Give everything back; the connection is gone."""
        self._clear()

    def _room(self, *, is_blocked: bool) -> int:
        """How much may be held outside of a lease."""
        room = HELD_MAX_BYTES if is_blocked else len(self._shared)
        if self._memory.holds_too_much:
            # An unfinished request moves to a lease when this has come, if it may.
            held = 0 if is_blocked else self._end - self._start
            room = min(room, held + SCARCE_READ_BYTES)
        return room

    def _needs_lease(self, size: int, left: int) -> bool:
        if size > SMALL_FRAME_BYTES:
            return left >= LEASE_FROM_BYTES or self._memory.holds_too_much
        return size > SCARCE_READ_BYTES and self._memory.holds_too_much

    def _head_frame_bytes(self) -> int:
        """Size of the first request with its size field; 0 if that is nonsense."""
        size: int = _SIZE.unpack_from(self._view, self._start)[0]
        return size + 4 if 0 < size <= self._max_frame_bytes else 0

    def _grow(self, lease: Lease) -> None:
        if lease.grow(self._end - self._start):
            self._use(lease)
        elif not self._is_own:
            self._hold()

    def _granted(self) -> None:
        assert self._lease is not None, "a lease that is released is not granted"
        self._use(self._lease)
        self._on_memory()

    def _use(self, lease: Lease) -> None:
        view = lease.view
        assert view is not None, "a lease that has grown has room"
        left = self._end - self._start
        if self._view is self._shared or self._held_bytes:
            view[:left] = self._view[self._start : self._end]
            self._count(0)
        self._view, self._is_own = view, True
        self._start, self._end = 0, left

    def _hold(self) -> None:
        # Writable, as an append writes offsets into the batches it is given.
        self._view = memoryview(bytearray(self._view[self._start : self._end]))
        self._is_own = True
        self._start, self._end = 0, len(self._view)
        self._count(self._end)

    def _count(self, held_bytes: int) -> None:
        self._memory.held_bytes += held_bytes - self._held_bytes
        self._held_bytes = held_bytes

    def _clear(self) -> None:
        self._view, self._is_own = self._shared, False
        self._start = self._end = 0
        self._count(0)
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.release()
