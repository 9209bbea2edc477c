"""Memory for requests that are kept while they arrive, bounded over all connections.

A connection takes a `Lease` for each unfinished request that is too large to be copied at every
read. The lease grows as bytes arrive: it occupies at most sixteen times what has come, or one step
of 2 MiB more than that. All leases together stay within ``queued.max.request.bytes``. A lease that
may not grow waits, and its connection stops reading, so the client's bytes stay in the network.

Requests over 1 MiB have three quarters of the memory, all others one quarter, and neither may use
the rest. So large requests that arrive slowly cannot keep ordinary ones waiting. In each part the
largest unfinished request has its whole size set aside, so it can always be completed; when it is
done, the next largest is the one that can. Among the leases that wait, those of the host that
occupies least and waits for fewest go first, and otherwise the one that has waited longest.

Up to 1 MiB a buffer is a bytearray. Beyond that it is an anonymous mapping, whose pages appear only
as bytes arrive. Fresh pages and zeros cost more than the copying into them, so mappings use huge
pages, and some buffers of either kind, which come in a few sizes, are kept for the next lease.

A request that is decoded in slices is copied first, as its buffer is needed for the next one
(dispatch.py). The copy counts until the last slice, in the part that its size belongs to, so no
more large requests are received than can be decoded. A copy waits for nothing, so it always ends.

`RequestMemory` also counts the copies of small unfinished requests and of requests that may not
start yet (receive_buffer.py), which have an eighth of the bound in addition. They are counted
after the fact: when they exceed it, connections read less ahead.

Reactor thread only. Source: the banker's algorithm, with the largest request as the one that can
finish.
"""

from __future__ import annotations

import mmap
from collections import Counter
from collections.abc import Callable
from typing import Final

from plogd.ports import Buffer

MAPPED_ABOVE_BYTES: Final = 1 << 20
"""Largest request of the part for ordinary requests, and largest buffer that is a bytearray."""
_HUGE_PAGE_BYTES: Final = 2 << 20
_SMALL_UNIT_BYTES: Final = 128 << 10
_EXACT_BYTES: Final = 64 << 10
_GROWTH: Final = 16
"""How much more than it has sent a client may occupy. A client that sends fast has its whole buffer
after one or two reads; one that sends little and stops occupies little."""
_KEEP_BYTES: Final = 8 << 20
"""Buffers each part keeps for reuse."""
_LARGE_SHARE: Final = 0.75
_HELD_SHARE: Final = 0.125


class Lease:
    """A buffer for one request of `frame_bytes`, which grows until it is released.

    Whatever still points into it after `release` or `grow` would see another request: the holder's
    views are released first (connection.py), and a handler keeps none.

    Attributes:
        view: what may be written; None until there is some.
        buffer: the whole buffer that `view` is a part of.
        charged_bytes: what it counts in the bound.
        is_waiting: it may not grow until another lease is released.
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
        """Whether there is room for the whole request."""
        return self.view is not None and len(self.view) == self.frame_bytes

    def grow(self, arrived_bytes: int) -> bool:
        """Make room for more than the `arrived_bytes` that are here; they are kept.

        False: it waits, and `on_granted` is called when it has grown, out of another's `release`.
        """
        assert not self.is_waiting, "a lease grows once at a time"
        self.arrived_bytes = arrived_bytes
        return self._part.serve(self)

    def release(self) -> None:
        """Give the buffer back, or the place in the line; harmless the second time."""
        view, self.view = self.view, None
        if view is not None:
            view.release()
        self._part.take_back(self)

    def use(self, buffer: memoryview, charged_bytes: int) -> None:
        """Continue in `buffer`, of which `charged_bytes` may be written."""
        old, self.view = self.view, buffer[: min(charged_bytes, self.frame_bytes)]
        if old is not None:
            if self.buffer is not buffer:
                self.view[: len(old)] = old
            old.release()
        self.buffer = buffer


class RequestMemory:
    """The budget of a broker.

    Args:
        on_wait: called when a lease has to wait.

    Attributes:
        held_bytes: copies outside of leases; their owners count them.
        held_limit_bytes: beyond this, connections read no more ahead than they have to; what
            `copied` counts of ordinary requests is taken off.
    """

    def __init__(self, limit_bytes: int, on_wait: Callable[[], None] = lambda: None) -> None:
        self.held_bytes = 0
        self._ordinary = _Part(on_wait)
        self._large = _Part(on_wait)
        self._limit_bytes = -1
        self.held_limit_bytes: float = 0
        self.limit_bytes = limit_bytes

    @property
    def limit_bytes(self) -> int:
        """Bound on the leases, -1 for none; a smaller one takes nothing away."""
        return self._limit_bytes

    @limit_bytes.setter
    def limit_bytes(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        large_bytes = int(limit_bytes * _LARGE_SHARE)
        is_bounded = limit_bytes >= 0
        self._large.limit_bytes = large_bytes if is_bounded else None
        self._ordinary.limit_bytes = limit_bytes - large_bytes if is_bounded else None
        self._set_held_limit()
        self._large.serve_line()
        self._ordinary.serve_line()

    def _set_held_limit(self) -> None:
        is_bounded = self._limit_bytes >= 0
        share = self._limit_bytes * _HELD_SHARE if is_bounded else float("inf")
        self.held_limit_bytes = share - self._ordinary.copied_bytes

    @property
    def leased_bytes(self) -> int:
        """What all leases occupy now, and the copies of requests that are decoded in slices."""
        return self._ordinary.used_bytes + self._large.used_bytes

    @property
    def used_bytes(self) -> int:
        """What is occupied now."""
        return self.leased_bytes + self.held_bytes

    @property
    def waiting(self) -> int:
        """How many connections have stopped reading until another one is done."""
        return self._ordinary.waiting + self._large.waiting

    @property
    def holds_too_much(self) -> bool:
        """Whether the copies outside of leases occupy too much."""
        return self.held_bytes > self.held_limit_bytes

    def lease(self, frame_bytes: int, host: str, on_granted: Callable[[], None]) -> Lease:
        """A lease for a request of `frame_bytes` from `host`; it has no room before it has grown.

        `on_granted` is called when it has grown after a wait.
        """
        return Lease(self._part_of(frame_bytes), frame_bytes, host, on_granted)

    def copied(self, nbytes: int) -> None:
        """Count a copy of a request of `nbytes`, until `decoded`."""
        self._part_of(nbytes).count_copy(nbytes)
        self._set_held_limit()

    def decoded(self, nbytes: int) -> None:
        """A copy of `nbytes` is there no longer; leases that wait may grow."""
        part = self._part_of(nbytes)
        part.count_copy(-nbytes)
        self._set_held_limit()
        part.serve_line()

    def _part_of(self, nbytes: int) -> _Part:
        return self._ordinary if nbytes <= MAPPED_ABOVE_BYTES else self._large


class _Part:
    """The leases of one of the two parts; `limit_bytes` None means no bound."""

    def __init__(self, on_wait: Callable[[], None]) -> None:
        self._on_wait = on_wait
        self.limit_bytes: int | None = None
        self.used_bytes = 0
        self.copied_bytes = 0
        """What copies take of `used_bytes`; leases have the rest."""
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
        """Let `lease` grow now, or have it wait."""
        if (not self._line or lease is self._largest) and self._fits(lease):
            self._grow(lease)
            return True
        lease.is_waiting = True
        self._line.append(lease)
        self._on_wait()
        self.serve_line(lease)  # Its host may be the next.
        return not lease.is_waiting

    def count_copy(self, nbytes: int) -> None:
        """A copy of `nbytes` is there, or no longer, if that is negative."""
        self.copied_bytes += nbytes
        self.used_bytes += nbytes
        assert self.copied_bytes >= 0, "a copy came back twice"

    def take_back(self, lease: Lease) -> None:
        """Forget `lease`; those that wait may grow."""
        if lease.is_waiting:
            lease.is_waiting = False
            self._line.remove(lease)
        elif not lease.charged_bytes:
            return  # It has been released before.
        if lease.charged_bytes:
            del self._holders[lease]
            if self._largest is lease:
                self._largest = None
                if self._holders:
                    self._largest = max(self._holders, key=lambda x: x.frame_bytes)
            buffer, lease.buffer = lease.buffer, None
            assert buffer is not None, "what is charged has a buffer"
            self._keep(buffer, lease.charged_bytes)
            self._charge(lease, 0)
        if self._line:
            self.serve_line()

    def serve_line(self, asking: Lease | None = None) -> None:
        """Let those that wait grow, as far as they fit; `asking` finds out by itself."""
        while self._line:
            lease = self._next()
            if not self._fits(lease):
                return
            self._line.remove(lease)
            lease.is_waiting = False
            self._grow(lease)
            if lease is not asking:
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
        assert self.used_bytes >= 0, "a lease came back twice"
        used = self._used_by_host.get(lease.host, 0) + change
        if used:
            self._used_by_host[lease.host] = used
        else:
            del self._used_by_host[lease.host]

    def _fits(self, lease: Lease) -> bool:
        limit, largest = self.limit_bytes, self._largest
        if limit is None or lease is largest:
            return True  # It can always be completed.
        if largest is None:  # The first is let in, however large it is, unless copies are there.
            return not self.copied_bytes or self.used_bytes + _whole(lease.frame_bytes) <= limit
        charge = _charge_of(lease) - lease.charged_bytes
        if lease.frame_bytes > largest.frame_bytes:
            others = self.used_bytes - lease.charged_bytes
            return others + _whole(lease.frame_bytes) <= limit
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
                self._largest = lease
        elif old_buffer is not buffer:
            self._keep(old_buffer, old_charge)

    def _find_buffer(self, frame_bytes: int, charged_bytes: int) -> tuple[memoryview, int]:
        """A buffer with room for a charge, and the charge, which counts pages touched before."""
        is_mapping = charged_bytes > MAPPED_ABOVE_BYTES
        nbytes = _whole(frame_bytes) if is_mapping else charged_bytes
        kept = self._kept.get(nbytes)
        if kept:
            buffer, touched_bytes = kept.pop()
            self._kept_bytes -= touched_bytes
            return buffer, max(touched_bytes, charged_bytes)
        made: Buffer | mmap.mmap = _map(nbytes) if is_mapping else bytearray(nbytes)
        return memoryview(made), charged_bytes

    def _keep(self, buffer: memoryview, touched_bytes: int) -> None:
        """Keep a buffer for the next lease, if it is one of those that are often asked for."""
        is_usual = len(buffer) % _SMALL_UNIT_BYTES == 0
        if is_usual and self._kept_bytes + touched_bytes <= _KEEP_BYTES:
            self._kept.setdefault(len(buffer), []).append((buffer, touched_bytes))
            self._kept_bytes += touched_bytes
        # Otherwise the last reference goes here, and with it the memory.


def _charge_of(lease: Lease) -> int:
    """What `lease` counts when it has grown."""
    frame_bytes, arrived_bytes = lease.frame_bytes, lease.arrived_bytes
    wanted = min(frame_bytes, max(_GROWTH * arrived_bytes, _SMALL_UNIT_BYTES))
    if wanted <= MAPPED_ABOVE_BYTES:
        return _whole(wanted)
    # The next page that will be touched.
    return min(_whole(frame_bytes), (arrived_bytes // _HUGE_PAGE_BYTES + 1) * _HUGE_PAGE_BYTES)


def _whole(nbytes: int) -> int:
    """What a buffer of `nbytes` occupies: small ones are exact, others come in a few sizes."""
    if nbytes <= _EXACT_BYTES:
        return nbytes
    unit = _SMALL_UNIT_BYTES if nbytes <= MAPPED_ABOVE_BYTES else _HUGE_PAGE_BYTES
    return -(-nbytes // unit) * unit


def _map(nbytes: int) -> mmap.mmap:
    mapping = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    try:
        mapping.madvise(mmap.MADV_HUGEPAGE)
    except OSError:
        pass  # A kernel built without huge pages: only slower.
    return mapping
