"""The received bytes of a connection that have not been handled yet.

All connections read into one shared buffer and handle their requests there, so an idle connection
does not use memory and most requests are not copied. Bytes that are left at the end of a turn
cannot stay in the shared buffer. An incomplete request of up to 64 KiB, and requests that may not
start yet, are copied to a buffer of exactly their size. A larger incomplete request moves to a
lease after part of it has arrived, and the rest is read directly into the lease, which grows as it
fills (request_memory.py). While all copies together use too much memory, connections read fewer
bytes ahead, and smaller requests also get leases.

`target` returns the buffer for the next bytes, `received` counts them, `next_frame` and `consume`
iterate over the requests, and `keep` ends a turn. Reactor thread only; called by connection.py.

Invariant: between turns, no reference to the shared buffer is left; a lease holds one request.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from plog.errors import PlogError
from plogd.net.request_memory import Lease, RequestMemory

SHARED_BUFFER_BYTES = 256 * 1024
"""Size of the shared buffer, and therefore the maximum size of a read without a lease."""
SMALL_FRAME_BYTES = 64 * 1024
"""Maximum size of an incomplete request without a lease; it is copied at most once per read."""
LEASE_FROM_BYTES = 16 * 1024
"""Minimum number of bytes received before a large request gets its first, larger lease."""
HELD_MAX_BYTES = 64 * 1024
"""Maximum read-ahead while requests may not start. It is not zero because only reading detects that
a client has disconnected; without reading, the client's parked request would keep its resources."""
SCARCE_READ_BYTES = 4 * 1024
"""Maximum read without a lease while the copies of all connections use too much memory."""
READ_MAX_BYTES = 1 << 20
"""Maximum size of a read into a lease, so that a fast client does not delay the others."""

_SIZE = struct.Struct(">i")
_NO_BYTES = memoryview(bytearray())


class BadFrameSize(PlogError):
    """Raised if the size before a request is outside the allowed range."""

    def __init__(self, size: int, max_bytes: int) -> None:
        super().__init__(f"a request of {size} bytes (allowed: 1 to {max_bytes})")
        self.size = size


class ReceiveBuffer:
    """The unhandled bytes of one connection; `shared` is the common buffer of all connections.

    Args:
        host: the client's host; memory is distributed fairly among hosts.
        on_memory: called when a lease has grown after waiting for memory.
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
        self._held_bytes = 0  # The size of this connection's copy as counted in `memory`.
        self._is_own = False
        self._lease: Lease | None = None

    @property
    def nbytes(self) -> int:
        """Return the number of bytes received and not consumed."""
        return self._end - self._start

    @property
    def waits_for_memory(self) -> bool:
        """Return whether reading has to wait until another connection releases its lease."""
        return self._lease is not None and self._lease.is_waiting

    @property
    def leased_bytes(self) -> int:
        """Return the size of this connection's lease as counted in `memory`."""
        return 0 if self._lease is None else self._lease.charged_bytes

    @property
    def frame_bytes(self) -> int:
        """Return the announced size of the first request; 0 if it is unknown or invalid."""
        return self._head_frame_bytes() if self._end - self._start >= 4 else 0

    def head(self) -> bytes | None:
        """Return the first four to eight unconsumed bytes; None if fewer than four have arrived."""
        if self._end - self._start < 4:
            return None
        # Eight bytes contain the size and the API key, and are enough to recognize PostgreSQL
        # clients.
        return bytes(self._view[self._start : min(self._start + 8, self._end)])

    @property
    def is_empty(self) -> bool:
        """Return whether no bytes are buffered and no lease is held, so reading is allowed."""
        return self._view is self._shared and self._start == self._end

    def may_read(self, *, is_blocked: bool) -> bool:
        """Return whether more bytes fit; with `is_blocked`, fewer bytes may be held."""
        lease = self._lease
        if lease is not None:
            return not lease.is_waiting and self._end < len(self._view)
        return self._end - self._start < self._room(is_blocked=is_blocked)

    def target(self, *, is_blocked: bool) -> memoryview:
        """Return the buffer for the next bytes; empty if no bytes may be read now."""
        shared, memory = self._shared, self._memory
        # `holds_too_much`, inlined because this runs at every read.
        is_scarce = memory.held_bytes > memory.held_limit_bytes
        if self._view is shared and not is_blocked and not is_scarce:
            # A separate view, so that the reader cannot release the shared one.
            return shared[:]
        if not self.may_read(is_blocked=is_blocked):
            return _NO_BYTES
        if self._lease is not None:
            return self._view[self._end : self._end + READ_MAX_BYTES]
        held, room = self._end - self._start, self._room(is_blocked=is_blocked)
        # Bytes received earlier are placed before the new ones, so that they form one range.
        shared[:held] = self._view[self._start : self._end]
        return shared[held:room]

    def received(self, nbytes: int) -> None:
        """Count `nbytes` that were read into the latest `target`."""
        if self._lease is not None:
            self._end += nbytes
            return
        held = self._end - self._start
        self._view, self._is_own = self._shared, False
        self._start, self._end = 0, held + nbytes
        if self._held_bytes:
            self._count(0)

    def next_frame(self) -> memoryview | None:
        """Return the next request without its size, or None if it is incomplete.

        The result is a view into this buffer; release it before `keep`. Raises BadFrameSize.
        """
        body = self._start + 4
        if self._end < body:
            return None
        size: int = _SIZE.unpack_from(self._view, self._start)[0]
        if not 0 < size <= self._max_frame_bytes:
            # Kafka's NetworkReceive accepts a size of 0, but such a request has no header to
            # decode.
            raise BadFrameSize(size, self._max_frame_bytes)
        self._frame_end = end = body + size
        return self._view[body:end] if end <= self._end else None

    def consume(self) -> None:
        """Remove the request that `next_frame` returned last."""
        self._start = self._frame_end

    def has_frame(self) -> bool:
        """Return whether a complete request has arrived, or a size that `next_frame` rejects."""
        left = self._end - self._start
        return left >= 4 and self._head_frame_bytes() <= left

    def keep(self, may_grow: Callable[[], bool] = lambda: True) -> None:
        """End a turn: move remaining bytes out of the shared buffer and free unused memory.

        `may_grow` returns whether an incomplete request may take more memory now.
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
            # With fewer than four bytes, the size is unknown, and the few bytes are copied.
            size = self._head_frame_bytes() if left >= 4 else SMALL_FRAME_BYTES
            is_unfinished = size > left
            if is_unfinished and self._needs_lease(size, left) and may_grow():
                self._lease = self._memory.lease(size, self._host, self._granted)
                self._grow(self._lease)
            # A copy is kept, unless it begins with handled requests, which would waste memory while
            # the rest of the request arrives.
            elif not self._is_own or (is_unfinished and self._start):
                self._hold()

    def close(self) -> None:
        """Release all memory, because the connection has closed."""
        self._clear()

    def _room(self, *, is_blocked: bool) -> int:
        """Return the number of bytes that may be held without a lease."""
        room = HELD_MAX_BYTES if is_blocked else len(self._shared)
        if self._memory.holds_too_much:
            # With these bytes, an incomplete request moves to a lease if it may grow.
            held = 0 if is_blocked else self._end - self._start
            room = min(room, held + SCARCE_READ_BYTES)
        return room

    def _needs_lease(self, size: int, left: int) -> bool:
        if size > SMALL_FRAME_BYTES:
            return left >= LEASE_FROM_BYTES or self._memory.holds_too_much
        return size > SCARCE_READ_BYTES and self._memory.holds_too_much

    def _head_frame_bytes(self) -> int:
        """Return the size of the first request including its size field; 0 if it is invalid."""
        size: int = _SIZE.unpack_from(self._view, self._start)[0]
        return size + 4 if 0 < size <= self._max_frame_bytes else 0

    def _grow(self, lease: Lease) -> None:
        if lease.grow(self._end - self._start):
            self._use(lease)
        # The lease waits. Meanwhile, the bytes must leave the shared buffer.
        elif not self._is_own:
            self._hold()

    def _granted(self) -> None:
        assert self._lease is not None, "a released lease does not grow"
        self._use(self._lease)
        self._on_memory()

    def _use(self, lease: Lease) -> None:
        view = lease.view
        assert view is not None, "a lease that has grown has room"
        left = self._end - self._start
        # If the lease held the bytes before, it has moved them itself (`Lease.use`).
        if self._view is self._shared or self._held_bytes:
            view[:left] = self._view[self._start : self._end]
            self._count(0)
        self._view, self._is_own = view, True
        self._start, self._end = 0, left

    def _hold(self) -> None:
        # The copy is writable because an append writes offsets into the batches of the request.
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
            # Last, because a connection that waits for this memory can start to read during this
            # call.
            lease.release()
