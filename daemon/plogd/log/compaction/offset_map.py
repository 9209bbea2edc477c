"""The latest offset of each key, in a flat table of bounded size.

Compaction reads the uncompacted part of a log and notes the last offset of each key. A dict would
take about 150 bytes for each key. The table takes 24: a digest of 16 bytes, so that two keys
practically never have the same one, and an offset. It begins small and grows as needed.

Pure. Source: Kafka 3.9 SkimpyOffsetMap.
"""

from __future__ import annotations

from array import array
from hashlib import blake2b

_DIGEST_BYTES = 16
ENTRY_BYTES = _DIGEST_BYTES + 8
_FIRST_SLOTS = 1024
_EMPTY = -1


def key_digest(key: bytes) -> bytes:
    """Return a digest that stands for a key."""
    return blake2b(key, digest_size=_DIGEST_BYTES).digest()


class OffsetMap:
    """Offsets by key digest. `max_bytes` also includes the old table while a table grows.

    >>> offsets = OffsetMap(max_bytes=1 << 20, load_factor=0.9)
    >>> offsets.put(key_digest(b"a"), 7), offsets.put(key_digest(b"a"), 9)
    (True, True)
    >>> offsets.get(key_digest(b"a")), offsets.get(key_digest(b"b"))
    (9, -1)
    """

    __slots__ = ("_digests", "_load_factor", "_max_bytes", "_offsets", "_room", "_slots", "count")

    def __init__(self, *, max_bytes: int, load_factor: float) -> None:
        self._max_bytes = max_bytes
        self._load_factor = load_factor
        self.count = 0
        """Number of keys."""
        self._allocate(max(2, min(_FIRST_SLOTS, max_bytes // ENTRY_BYTES)))

    @property
    def size_bytes(self) -> int:
        """Size of the table in bytes."""
        return self._slots * ENTRY_BYTES

    @property
    def utilization(self) -> float:
        """The part of the largest possible table that is in use, for metrics."""
        return self.count * ENTRY_BYTES / self._max_bytes

    def get(self, digest: bytes) -> int:
        """Return the last offset of a key, or -1."""
        return self._offsets[self._slot_of(digest)]

    def put(self, digest: bytes, offset: int) -> bool:
        """Set the last offset of a key; return False if there is no room for another key."""
        slot = self._slot_of(digest)
        if self._offsets[slot] == _EMPTY:
            if self.count >= self._room:
                if not self._grow():
                    return False
                slot = self._slot_of(digest)
            start = slot * _DIGEST_BYTES
            self._digests[start : start + _DIGEST_BYTES] = digest
            self.count += 1
        self._offsets[slot] = offset
        return True

    def _slot_of(self, digest: bytes) -> int:
        """Return the slot that contains a digest, or the empty slot for it."""
        offsets, digests, slots = self._offsets, self._digests, self._slots
        slot = int.from_bytes(digest[:8], "big") % slots
        while offsets[slot] != _EMPTY:
            start = slot * _DIGEST_BYTES
            if digests[start : start + _DIGEST_BYTES] == digest:
                break
            slot += 1
            if slot == slots:
                slot = 0
        return slot

    def _grow(self) -> bool:
        """Move the entries to a larger table, if the limit allows it."""
        slots = min(2 * self._slots, self._max_bytes // ENTRY_BYTES - self._slots)
        if slots <= self._slots:
            return False
        digests, offsets = self._digests, self._offsets
        self._allocate(slots)
        for number, offset in enumerate(offsets):
            if offset != _EMPTY:
                start = number * _DIGEST_BYTES
                digest = bytes(digests[start : start + _DIGEST_BYTES])
                slot = self._slot_of(digest)
                to = slot * _DIGEST_BYTES
                self._digests[to : to + _DIGEST_BYTES] = digest
                self._offsets[slot] = offset
        return True

    def _allocate(self, slots: int) -> None:
        self._slots = slots
        self._digests = bytearray(slots * _DIGEST_BYTES)
        self._offsets = array("q", [_EMPTY]) * slots
        # At least one slot stays empty: a search for a missing key ends there.
        self._room = min(slots - 1, max(1, int(slots * self._load_factor)))
