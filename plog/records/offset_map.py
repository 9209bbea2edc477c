"""The latest offset of each key, in a flat table of bounded size.

Compaction (daemon/plogd/log/compaction) reads the uncompacted part of a log and notes the last
offset of each key. A dict would take about 150 bytes for each key. The table takes 24: a digest of
16 bytes, so that two keys practically never have the same one, and an offset.

The digest consists of two results of Python's `hash`, of the key and of the key after a constant.
`hash` is SipHash with a secret key of 128 bits, which each process chooses at random, and SipHash
is made for keys that an attacker chooses: an attacker who does not know the secret cannot find two
keys with the same digest faster than by chance (n² / 2^129 for n keys), nor keys that fall into the
same part of the table. MD5, which Kafka uses, has no secret, and two keys with the same MD5 are
easy to find. `hash` also takes less time than a call of hashlib, 0.04 instead of 0.4 µs. The
digests never leave the process, whose environment must not set PYTHONHASHSEED (child_process.py).

setup.py compiles this module (decision 0011): offset_map.pxd declares its C types. Pure. Source:
Kafka 3.9 SkimpyOffsetMap.
"""

# No `from __future__ import annotations`: Debian 12's Cython 0.29 does not support it.
import sys

from plog.records.record_spans import KeptCounts, RecordSpans

_WORDS = 3
"""Words of 8 bytes in an entry: the two parts of the digest, and the complement of the offset."""
ENTRY_BYTES = 8 * _WORDS
_FIRST_SLOTS = 1024
_SECOND_PREFIX = b"plog/2/\xff"


class OffsetMap:
    """Offsets by key. `max_bytes` also includes the old table while a table grows.

    The table begins small and grows as needed, but to no more than `max_keys` need.

    >>> offsets = OffsetMap(max_bytes=1 << 20, load_factor=0.9)
    >>> offsets.put(b"a", 7), offsets.put(b"a", 9)
    (True, True)
    >>> offsets.get(b"a"), offsets.get(b"b")
    (9, -1)
    """

    __slots__ = (
        "_entries",
        "_load_factor",
        "_max_slots",
        "_most_slots",
        "_room",
        "_slots",
        "count",
    )

    def __init__(self, *, max_bytes: int, load_factor: float, max_keys: int | None = None) -> None:
        assert sys.hash_info.algorithm.startswith("siphash"), "this Python has no keyed hash"
        self._load_factor = load_factor
        self._max_slots = max_slots = max(2, max_bytes // ENTRY_BYTES)
        self._most_slots = max_slots
        if max_keys is not None and load_factor > max_keys / max_slots:
            self._most_slots = min(max_slots, int(max_keys / load_factor) + 2)
        self.count = 0
        """Number of keys."""
        # A table of the first size is at most a tenth, so that the last one can have the rest.
        first = min(_FIRST_SLOTS, max_slots // 10)
        self._allocate(min(first if first > 10 else max_slots, self._most_slots))

    @property
    def size_bytes(self) -> int:
        """Size of the table in bytes."""
        return self._slots * ENTRY_BYTES

    @property
    def utilization(self) -> float:
        """The part of the largest possible table that is in use, for metrics."""
        return self.count / self._max_slots

    def get(self, key: bytes) -> int:
        """Return the last offset of a key, or -1."""
        return _offset_of(self._entries, self._slots, key)

    def put(self, key: bytes, offset: int) -> bool:
        """Set the last offset of a key; return False if there is no room for another key."""
        spans = RecordSpans()
        spans.begin(1)
        # A position of 0 stands for null.
        spans.offsets[0], spans.key_starts[0], spans.key_ends[0] = offset, 1, 1 + len(key)
        return self.put_keys(b"\0" + key, spans, 0)

    def put_keys(self, data: bytes, spans: RecordSpans, from_offset: int) -> bool:
        """Set the last offsets of the keys in a batch; ignore records before `from_offset`.

        `spans` are those of the records in `data`. Returns False if there is no room for all keys;
        some may have been added.
        """
        row = 0
        while True:
            room = self._room - self.count
            row, added = _put_rows(self._entries, self._slots, room, data, spans, row, from_offset)
            self.count += added
            if row == spans.count:
                return True
            if not self._grow():
                return False

    def mark_kept(
        self, data: bytes, spans: RecordSpans, end_offset: int, keeps_tombstones: bool
    ) -> KeptCounts:
        """Set `is_kept` for the records that are the last ones of their keys, or not in the map.

        Records from `end_offset` on are kept. Other records without a key, and tombstones unless
        `keeps_tombstones`, are not. Returns the number of records that are kept, of the tombstones
        among them, and of the removed records without a key.
        """
        return _mark_rows(self._entries, self._slots, data, spans, end_offset, keeps_tombstones)

    def _grow(self) -> bool:
        """Move the entries to a larger table, if the limit allows it."""
        slots, entries = self._slots, self._entries
        # The last table takes what the one before it leaves: nine tenths or more.
        larger = 2 * slots if slots <= self._max_slots // 20 else self._max_slots - slots
        larger = min(larger, self._most_slots)
        if larger <= slots:
            return False
        self._allocate(larger)
        _move(entries, slots, self._entries, larger)
        return True

    def _allocate(self, slots: int) -> None:
        self._slots = slots
        # The kernel provides pages of zeros when they are first used. 0 marks an empty slot.
        self._entries = memoryview(bytearray(slots * ENTRY_BYTES)).cast("q")
        # At least one slot stays empty: a search for a missing key ends there.
        self._room = min(slots - 1, max(1, int(slots * self._load_factor)))


def _find(entries: memoryview, slots: int, first: int, second: int) -> int:
    """Return the position of the entry that has this digest, or of the empty one for it."""
    slot = first % slots
    position = slot * _WORDS
    while entries[position + 2] and not (
        entries[position] == first and entries[position + 1] == second
    ):
        slot += 1
        if slot == slots:
            slot = 0
        position = slot * _WORDS
    return position


def _offset_of(entries: memoryview, slots: int, key: bytes) -> int:
    return ~entries[_find(entries, slots, hash(key), hash(_SECOND_PREFIX + key)) + 2]


def _put_rows(
    entries: memoryview,
    slots: int,
    room: int,
    data: bytes,
    spans: RecordSpans,
    row: int,
    from_offset: int,
) -> tuple[int, int]:
    """Put the keys of the rows from `row` on, until one needs an entry that is not in `room`.

    Returns the row after the last one, and the number of new entries.
    """
    offsets, key_starts, key_ends = spans.offsets, spans.key_starts, spans.key_ends
    count, added = spans.count, 0
    while row < count:
        offset, start = offsets[row], key_starts[row]
        if start and offset >= from_offset:
            key = data[start : key_ends[row]]
            first, second = hash(key), hash(_SECOND_PREFIX + key)
            position = _find(entries, slots, first, second)
            if not entries[position + 2]:
                if added >= room:
                    break
                added += 1
                entries[position], entries[position + 1] = first, second
            entries[position + 2] = ~offset
        row += 1
    return row, added


def _mark_rows(
    entries: memoryview,
    slots: int,
    data: bytes,
    spans: RecordSpans,
    end_offset: int,
    keeps_tombstones: bool,
) -> tuple[int, int, int]:
    offsets, key_starts, key_ends = spans.offsets, spans.key_starts, spans.key_ends
    has_value, is_kept = spans.has_value, spans.is_kept
    kept = tombstones = keyless = 0
    for row in range(spans.count):
        offset, start = offsets[row], key_starts[row]
        keeps = True
        if offset < end_offset:
            if not start:
                keyless += 1
                keeps = False
            elif not (has_value[row] or keeps_tombstones):
                keeps = False
            else:
                key = data[start : key_ends[row]]
                first, second = hash(key), hash(_SECOND_PREFIX + key)
                keeps = offset >= ~entries[_find(entries, slots, first, second) + 2]
        is_kept[row] = keeps
        if keeps:
            kept += 1
            if not has_value[row]:
                tombstones += 1
    return kept, tombstones, keyless


def _move(entries: memoryview, slots: int, larger: memoryview, larger_slots: int) -> None:
    """Copy the entries of a table to an empty, larger one."""
    for slot in range(slots):
        old = slot * _WORDS
        if entries[old + 2]:
            new = _find(larger, larger_slots, entries[old], entries[old + 1])
            larger[new], larger[new + 1] = entries[old], entries[old + 1]
            larger[new + 2] = entries[old + 2]
