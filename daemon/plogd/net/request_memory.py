"""Memory for requests that are too large to be kept as they arrive, bounded for all connections.

A connection that has read the size of a large request leases a buffer for the whole of it, reads
straight into it, and gives it back when the request has been handled. The sum of all leases stays
within ``queued.max.request.bytes``; where a lease does not fit, the connection stops reading and
waits in line, so a granted lease can always be filled and returned.

Up to 1 MiB a lease is a bytearray. Beyond that it is an anonymous mapping: a bytearray would be
filled with zeros first, and a mapping's pages appear only as bytes arrive. Fresh pages and zeros
cost more than the copying into them, so mappings use huge pages, and some buffers of either kind,
which come in a few sizes, are kept for the next lease.

Reactor thread only; called by receive_buffer.py. Invariant: `used_bytes` is the sum of the leases
given out, and nobody who fits waits behind nobody.
"""

from __future__ import annotations

import mmap
from collections import deque
from collections.abc import Callable

from plogd.ports import Buffer

MAPPED_ABOVE_BYTES = 1 << 20
_HUGE_PAGE_BYTES = 2 << 20
_SMALL_UNIT_BYTES = 128 << 10
_KEEP_BYTES = 16 << 20
"""Buffers kept for reuse, all together."""


class Lease:
    """A writable buffer of `nbytes`, the holder's until `release`.

    Whatever still points into it afterwards would see the next request: the holder's views are
    released first (connection.py), and a handler keeps none.
    """

    __slots__ = ("_buffer", "_memory", "reserved_bytes", "view")

    def __init__(
        self, memory: RequestMemory, buffer: Buffer | mmap.mmap, nbytes: int, reserved_bytes: int
    ) -> None:
        self._memory: RequestMemory | None = memory
        self._buffer = memoryview(buffer)
        self.view = self._buffer[:nbytes]
        self.reserved_bytes = reserved_bytes

    def release(self) -> None:
        """Give the buffer back; harmless the second time."""
        memory, self._memory = self._memory, None
        if memory is not None:
            self.view.release()
            memory._take_back(self._buffer, self.reserved_bytes)


class MemoryWait:
    """A place in the line for `nbytes`; `on_granted` gets the lease."""

    __slots__ = ("nbytes", "on_granted")

    def __init__(self, nbytes: int, on_granted: Callable[[Lease], None]) -> None:
        self.nbytes = nbytes
        self.on_granted = on_granted


class RequestMemory:
    """The budget of a broker; `limit_bytes` -1 means none.

    Attributes:
        limit_bytes: may be changed at any time; a smaller one takes nothing away from anybody.
        used_bytes: reserved by leases now.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._line: deque[MemoryWait] = deque()
        self._kept: dict[int, list[memoryview]] = {}
        self._kept_bytes = 0

    @property
    def waiting(self) -> int:
        """How many connections have stopped reading until somebody else is done."""
        return len(self._line)

    def lease(self, nbytes: int) -> Lease | None:
        """A buffer of `nbytes`, or None if it does not fit now or others wait already."""
        if self._line or not self._fits(nbytes):
            return None
        return self._grant(nbytes)

    def wait(self, nbytes: int, on_granted: Callable[[Lease], None]) -> MemoryWait:
        """Stand in line; `on_granted` is called, once, out of somebody else's `release`."""
        place = MemoryWait(nbytes, on_granted)
        self._line.append(place)
        return place

    def leave(self, place: MemoryWait) -> None:
        """Leave the line; those behind may be next."""
        if place in self._line:
            self._line.remove(place)
            self._serve_line()

    def _fits(self, nbytes: int) -> bool:
        # One request is always let in: else one above the limit would wait for ever.
        return (
            self.limit_bytes < 0
            or self.used_bytes == 0
            or self.used_bytes + _reserved(nbytes) <= self.limit_bytes
        )

    def _grant(self, nbytes: int) -> Lease:
        reserved_bytes = _reserved(nbytes)
        self.used_bytes += reserved_bytes
        kept = self._kept.get(reserved_bytes)
        if kept:
            self._kept_bytes -= reserved_bytes
            return Lease(self, kept.pop(), nbytes, reserved_bytes)
        is_small = nbytes <= MAPPED_ABOVE_BYTES
        buffer = bytearray(reserved_bytes) if is_small else _map(reserved_bytes)
        return Lease(self, buffer, nbytes, reserved_bytes)

    def _take_back(self, buffer: memoryview, reserved_bytes: int) -> None:
        self.used_bytes -= reserved_bytes
        assert self.used_bytes >= 0, "a lease came back twice"
        if self._kept_bytes + reserved_bytes <= _KEEP_BYTES:
            self._kept.setdefault(reserved_bytes, []).append(buffer)
            self._kept_bytes += reserved_bytes
        # Otherwise the last reference goes here, and with it the memory.
        self._serve_line()

    def _serve_line(self) -> None:
        while self._line and self._fits(self._line[0].nbytes):
            place = self._line.popleft()
            place.on_granted(self._grant(place.nbytes))


def _reserved(nbytes: int) -> int:
    """What a lease of `nbytes` takes: mappings come in whole huge pages, others in 128 KiB."""
    unit = _SMALL_UNIT_BYTES if nbytes <= MAPPED_ABOVE_BYTES else _HUGE_PAGE_BYTES
    return -(-nbytes // unit) * unit


def _map(nbytes: int) -> mmap.mmap:
    mapping = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    try:
        mapping.madvise(mmap.MADV_HUGEPAGE)
    except OSError:
        pass  # A kernel built without huge pages: only slower.
    return mapping
