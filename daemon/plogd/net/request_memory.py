"""Memory for incomplete requests, with one limit for all connections.

A connection takes a `Lease` for each incomplete request that is too large to be copied at every
read. The lease grows as bytes arrive, so a client cannot occupy memory by only announcing a large
request. All leases together stay within ``queued.max.request.bytes``. A lease that may not grow
waits, and its connection stops reading, so that the client's bytes stay in the network.

Requests over 1 MiB share three quarters of the memory, and all others share one quarter. Neither
group may use the other's part, so large requests that arrive slowly cannot delay ordinary requests.
In each part, the whole size of the largest incomplete request is reserved, so that it can always be
completed; then the next largest request gets the reservation. Among the waiting leases, the leases
of the host with the least memory and the fewest waiting leases grow first, in order of arrival.

Up to 1 MiB, a buffer is a bytearray. A larger buffer is an anonymous mapping, whose pages are
allocated only as bytes arrive. Allocating and zeroing pages costs more than copying into them, so
mappings use huge pages, buffers have only a few sizes, and some buffers are kept for reuse.

A request that is decoded in slices is copied first, because its buffer is needed for the next
request (dispatch.py). The copy counts toward the part for its size until the last slice is decoded,
so no more large requests are received than can be decoded. A copy never waits, so it is always
released.

`RequestMemory` also counts the copies of small incomplete requests and of requests that may not
start yet (receive_buffer.py), which may use an additional eighth of the limit. They are counted
after they are made; when they exceed their share, connections read fewer bytes ahead.

Reactor thread only. Source: the banker's algorithm; the largest request is the one that can finish.
"""

from __future__ import annotations

import mmap
from collections import Counter
from collections.abc import Callable
from typing import Final

from plogd.ports import Buffer

MAPPED_ABOVE_BYTES: Final = 1 << 20
"""Maximum size of a request in the ordinary part, and of a buffer that is a bytearray."""
_HUGE_PAGE_BYTES: Final = 2 << 20
"""The huge page size on x86-64, and on arm64 with pages of 4 KiB."""
_SMALL_UNIT_BYTES: Final = 128 << 10
"""Unit of buffer sizes from 64 KiB to 1 MiB, so that a kept buffer suits many requests."""
_EXACT_BYTES: Final = 64 << 10
"""Up to this size, a buffer has exactly the size of its request and is not kept."""
_GROWTH: Final = 16
"""Maximum ratio of a lease to the bytes received. A client that sends fast gets its whole buffer
after one or two reads; a client that sends a few bytes and stops occupies little memory."""
_KEEP_BYTES: Final = 8 << 20
"""Maximum size of the buffers that each part keeps for reuse."""
_LARGE_SHARE: Final = 0.75
"""Share of the limit for requests over 1 MiB; other requests have the rest."""
_HELD_SHARE: Final = 0.125
"""Share for copies without a lease, which is added to the limit."""


class Lease:
    """A buffer for one request of `frame_bytes`, which grows until it is released.

    Views of the buffer must be released before `release` or `grow`, because the buffer may be
    reused for another request. connection.py does so, and handlers do not keep views.

    Attributes:
        view: the usable part of the buffer; None before the lease has grown.
        buffer: the whole buffer that contains `view`.
        charged_bytes: the size of the lease as counted toward the limit.
        is_waiting: whether the lease cannot grow until another lease is released.
    """

    __slots__ = (
        "_part",
        "arrived_bytes",
        "buffer",
        "charged_bytes",
        "frame_bytes",
        "host",
        "is_waiting",
        "on_granted",
        "view",
    )

    def __init__(
        self, part: _Part, frame_bytes: int, host: str, on_granted: Callable[[], None]
    ) -> None:
        self._part = part
        self.on_granted = on_granted
        self.host = host
        self.buffer: memoryview | None = None
        self.view: memoryview | None = None
        self.frame_bytes = frame_bytes
        self.arrived_bytes = 0
        self.charged_bytes = 0
        self.is_waiting = False

    @property
    def is_complete(self) -> bool:
        """Return whether there is room for the whole request."""
        return self.view is not None and len(self.view) == self.frame_bytes

    def grow(self, arrived_bytes: int) -> bool:
        """Make room for more than the `arrived_bytes` received so far, which are kept.

        If this returns False, the lease waits. The `release` of another lease then makes it grow,
        and calls `on_granted`.
        """
        assert not self.is_waiting, "a lease can grow only once at a time"
        self.arrived_bytes = arrived_bytes
        return self._part.serve(self)

    def release(self) -> None:
        """Return the buffer, or stop waiting; calling this again has no effect."""
        view, self.view = self.view, None
        if view is not None:
            view.release()
        self._part.take_back(self)

    def use(self, buffer: memoryview, charged_bytes: int) -> None:
        """Move the contents to `buffer`, of which `charged_bytes` are usable."""
        old, self.view = self.view, buffer[: min(charged_bytes, self.frame_bytes)]
        if old is not None:
            if self.buffer is not buffer:
                self.view[: len(old)] = old
            old.release()
        self.buffer = buffer


class RequestMemory:
    """The memory of one broker for incomplete requests.

    Args:
        on_wait: called when a lease has to wait.

    Attributes:
        held_bytes: the size of copies without a lease, which is updated by the buffers that hold
            them.
        held_limit_bytes: beyond this size, connections read ahead as little as possible; the
            ordinary requests in `copied` reduce it.
    """

    def __init__(self, limit_bytes: int, on_wait: Callable[[], None] = lambda: None) -> None:
        self.held_bytes = 0
        self._ordinary = _Part(on_wait)
        self._large = _Part(on_wait)
        self._limit_bytes = -1
        self.held_limit_bytes: float = 0
        # Through the setter, which divides the limit between the two parts.
        self.limit_bytes = limit_bytes

    @property
    def limit_bytes(self) -> int:
        """Return the limit on the leases, -1 for none; lowering it keeps existing leases."""
        return self._limit_bytes

    @limit_bytes.setter
    def limit_bytes(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        large_bytes = int(limit_bytes * _LARGE_SHARE)
        is_bounded = limit_bytes >= 0
        self._large.limit_bytes = large_bytes if is_bounded else None
        self._ordinary.limit_bytes = limit_bytes - large_bytes if is_bounded else None
        self._set_held_limit()
        # With a higher limit, there may be room for waiting leases.
        self._large.serve_line()
        self._ordinary.serve_line()

    def _set_held_limit(self) -> None:
        is_bounded = self._limit_bytes >= 0
        share = self._limit_bytes * _HELD_SHARE if is_bounded else float("inf")
        self.held_limit_bytes = share - self._ordinary.copied_bytes

    @property
    def leased_bytes(self) -> int:
        """Return the size of all leases and of the copies of requests decoded in slices."""
        return self._ordinary.used_bytes + self._large.used_bytes

    @property
    def used_bytes(self) -> int:
        """Return the total memory in use."""
        return self.leased_bytes + self.held_bytes

    @property
    def waiting(self) -> int:
        """Return the number of connections that wait for memory before they read more."""
        return self._ordinary.waiting + self._large.waiting

    @property
    def holds_too_much(self) -> bool:
        """Return whether the copies without a lease exceed their limit."""
        return self.held_bytes > self.held_limit_bytes

    def lease(self, frame_bytes: int, host: str, on_granted: Callable[[], None]) -> Lease:
        """Return an empty lease for a request of `frame_bytes` from `host`.

        `on_granted` is called when the lease has grown after waiting.
        """
        return Lease(self._part_of(frame_bytes), frame_bytes, host, on_granted)

    def copied(self, nbytes: int) -> None:
        """Count a copied request of `nbytes` until `decoded` is called."""
        self._part_of(nbytes).count_copy(nbytes)
        self._set_held_limit()

    def decoded(self, nbytes: int) -> None:
        """Remove a copy of `nbytes`; waiting leases may grow."""
        part = self._part_of(nbytes)
        part.count_copy(-nbytes)
        self._set_held_limit()
        part.serve_line()

    def _part_of(self, nbytes: int) -> _Part:
        return self._ordinary if nbytes <= MAPPED_ABOVE_BYTES else self._large


class _Part:
    """The leases of one of the two parts, with no limit if `limit_bytes` is None."""

    def __init__(self, on_wait: Callable[[], None]) -> None:
        self._on_wait = on_wait
        self.limit_bytes: int | None = None
        self.used_bytes = 0
        self.copied_bytes = 0
        """The part of `used_bytes` used by copies; leases use the rest."""
        self._holders: dict[Lease, None] = {}
        self._largest: Lease | None = None
        self._line: list[Lease] = []
        self._used_by_host: dict[str, int] = {}
        self._kept: dict[int, list[tuple[memoryview, int]]] = {}
        self._kept_bytes = 0

    @property
    def waiting(self) -> int:
        return len(self._line)

    def serve(self, lease: Lease) -> bool:
        """Grow `lease` now and return True, or make it wait."""
        # A lease does not overtake waiting leases, except the largest lease, whose memory is
        # reserved.
        if (not self._line or lease is self._largest) and self._fits(lease):
            self._grow(lease)
            return True
        lease.is_waiting = True
        # Its connection stops reading, so TCP's flow control makes the client wait.
        self._line.append(lease)
        self._on_wait()
        self.serve_line(lease)  # Its host may be next.
        return not lease.is_waiting

    def count_copy(self, nbytes: int) -> None:
        """Add a copy of `nbytes`, or remove one if negative."""
        self.copied_bytes += nbytes
        self.used_bytes += nbytes
        assert self.copied_bytes >= 0, "a copy was removed twice"

    def take_back(self, lease: Lease) -> None:
        """Remove `lease`; waiting leases may grow."""
        if lease.is_waiting:
            lease.is_waiting = False
            self._line.remove(lease)
        elif not lease.charged_bytes:
            return  # It was released before.
        if lease.charged_bytes:
            del self._holders[lease]
            if self._largest is lease:
                self._largest = None
                if self._holders:
                    self._largest = max(self._holders, key=lambda x: x.frame_bytes)
            buffer, lease.buffer = lease.buffer, None
            assert buffer is not None, "a charged lease has a buffer"
            self._keep(buffer, lease.charged_bytes)
            self._charge(lease, 0)
        if self._line:
            self.serve_line()

    def serve_line(self, requesting: Lease | None = None) -> None:
        """Grow waiting leases while there is room, and notify all of them except `requesting`."""
        while self._line:
            lease = self._next()
            if not self._fits(lease):
                return
            self._line.remove(lease)
            lease.is_waiting = False
            self._grow(lease)
            if lease is not requesting:
                lease.on_granted()

    def _next(self) -> Lease:
        largest = self._largest
        if largest is not None and largest.is_waiting:
            return largest
        used, waiting = self._used_by_host, Counter(lease.host for lease in self._line)
        return min(self._line, key=lambda lease: (used.get(lease.host, 0), waiting[lease.host]))

    def _charge(self, lease: Lease, charged_bytes: int) -> None:
        change = charged_bytes - lease.charged_bytes
        lease.charged_bytes = charged_bytes
        self.used_bytes += change
        assert self.used_bytes >= 0, "a lease was released twice"
        used = self._used_by_host.get(lease.host, 0) + change
        if used:
            self._used_by_host[lease.host] = used
        else:
            # Otherwise, the dict would grow with every host that ever connected.
            del self._used_by_host[lease.host]

    def _fits(self, lease: Lease) -> bool:
        limit, largest = self.limit_bytes, self._largest
        if limit is None or lease is largest:
            return True  # The whole size of the largest lease is reserved.
        # The first lease fits regardless of its size, because socket.request.max.bytes may exceed
        # the limit of a part. Copies are released independently of leases, so it can wait for them.
        if largest is None:
            return not self.copied_bytes or self.used_bytes + _whole(lease.frame_bytes) <= limit
        charge = _charge_of(lease) - lease.charged_bytes
        if lease.frame_bytes > largest.frame_bytes:
            # It becomes the largest, so its whole size must fit.
            others = self.used_bytes - lease.charged_bytes
            return others + _whole(lease.frame_bytes) <= limit
        # The part of the reservation that the largest lease does not use yet.
        set_aside = _whole(largest.frame_bytes) - largest.charged_bytes
        return self.used_bytes + set_aside + charge <= limit

    def _grow(self, lease: Lease) -> None:
        charged_bytes = _charge_of(lease)
        old_buffer, old_charge = lease.buffer, lease.charged_bytes
        buffer = old_buffer
        if buffer is None or charged_bytes > len(buffer):
            buffer, charged_bytes = self._find_buffer(lease.frame_bytes, charged_bytes)
        lease.use(buffer, charged_bytes)
        self._charge(lease, charged_bytes)
        if old_buffer is None:
            self._holders[lease] = None
            if self._largest is None or lease.frame_bytes > self._largest.frame_bytes:
                # From now on, the whole size of this request is reserved, so it can always be
                # completed.
                self._largest = lease
        elif old_buffer is not buffer:
            self._keep(old_buffer, old_charge)

    def _find_buffer(self, frame_bytes: int, charged_bytes: int) -> tuple[memoryview, int]:
        """Return a buffer and the actual charge for it, which includes touched pages."""
        is_mapping = charged_bytes > MAPPED_ABOVE_BYTES
        nbytes = _whole(frame_bytes) if is_mapping else charged_bytes
        kept = self._kept.get(nbytes)
        if kept:
            buffer, touched_bytes = kept.pop()
            self._kept_bytes -= touched_bytes
            # The touched pages of a kept mapping still occupy memory, so they are charged.
            return buffer, max(touched_bytes, charged_bytes)
        made: Buffer | mmap.mmap = _map(nbytes) if is_mapping else bytearray(nbytes)
        return memoryview(made), charged_bytes

    def _keep(self, buffer: memoryview, touched_bytes: int) -> None:
        """Keep a buffer for reuse if it has one of the common sizes."""
        is_usual = len(buffer) % _SMALL_UNIT_BYTES == 0
        if is_usual and self._kept_bytes + touched_bytes <= _KEEP_BYTES:
            self._kept.setdefault(len(buffer), []).append((buffer, touched_bytes))
            self._kept_bytes += touched_bytes
        # Otherwise this drops the last reference and frees the memory.


def _charge_of(lease: Lease) -> int:
    """Return the size of `lease` after growing, as counted toward the limit."""
    frame_bytes, arrived_bytes = lease.frame_bytes, lease.arrived_bytes
    wanted = min(frame_bytes, max(_GROWTH * arrived_bytes, _SMALL_UNIT_BYTES))
    if wanted <= MAPPED_ABOVE_BYTES:
        return _whole(wanted)
    # A mapping touches one huge page at a time, and the next bytes touch the next page.
    return min(_whole(frame_bytes), (arrived_bytes // _HUGE_PAGE_BYTES + 1) * _HUGE_PAGE_BYTES)


def _whole(nbytes: int) -> int:
    """Return the buffer size for `nbytes`: exact if small, otherwise rounded up to a unit."""
    if nbytes <= _EXACT_BYTES:
        return nbytes
    unit = _SMALL_UNIT_BYTES if nbytes <= MAPPED_ABOVE_BYTES else _HUGE_PAGE_BYTES
    return -(-nbytes // unit) * unit


def _map(nbytes: int) -> mmap.mmap:
    # Python's default, MAP_SHARED, allocates shared memory, which has no huge pages by default.
    mapping = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    try:
        mapping.madvise(mmap.MADV_HUGEPAGE)
    except OSError:
        pass  # A kernel without huge pages is only slower.
    return mapping
