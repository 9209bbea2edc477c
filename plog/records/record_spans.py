"""`RecordSpans`: where the records of a batch are, without an object for each record.

`decode_spans` in codec.py fills it. Compaction compares the keys of all records (offset_map.py),
and copies the bytes of those that remain.
"""

from __future__ import annotations

from array import array
from typing import TypeAlias

KeptCounts: TypeAlias = tuple[int, int, int]
"""Numbers of kept records, of tombstones among them, and of removed records without a key."""


class RecordSpans:
    """The records of one batch in rows, which are used again for the next batch.

    Record `row` has the bytes from `starts[row]` to `starts[row + 1]` of the uncompressed records,
    and its key those from `key_starts[row]` to `key_ends[row]`. `key_starts[row]` is 0 if the key
    is null. `has_value` and `is_kept` contain 0 or 1; `is_kept` is for `OffsetMap.mark_kept`.
    """

    __slots__ = (
        "count",
        "has_value",
        "is_kept",
        "key_ends",
        "key_starts",
        "offsets",
        "starts",
        "timestamps",
    )

    def __init__(self) -> None:
        self.count = 0
        """Number of rows that are in use."""
        self.offsets = array("q")
        self.timestamps = array("q")
        self.starts = array("q", (0,))
        self.key_starts = array("q")
        self.key_ends = array("q")
        self.has_value = bytearray()
        self.is_kept = bytearray()

    def begin(self, count: int) -> None:
        """Provide `count` rows, whose contents are undefined."""
        self.count = count
        missing = count - len(self.offsets)
        if missing > 0:
            for numbers in (
                self.offsets,
                self.timestamps,
                self.starts,
                self.key_starts,
                self.key_ends,
            ):
                numbers.frombytes(bytes(numbers.itemsize * missing))
            self.has_value += bytes(missing)
            self.is_kept += bytes(missing)
