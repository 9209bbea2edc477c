"""`RecordColumns`: records as columns in Arrow's memory layout, without an object for each record.

column_decoder.py fills the columns, and the client's arrow.py converts them to Arrow arrays.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from plog.records.record import Header

_MAX_BYTES = 1 << 30
"""Half of the bytes that Arrow's int32 offsets can address: a batch of up to 1 GiB still fits."""


class RecordColumns:
    """Records as columns in Arrow's memory layout; see `ColumnDecoder`.

    `keys` and `values` are lists of bytes, which together contain all keys and all values.
    `key_ends` and `value_ends` start with 0, followed by the end of each key and value in these
    bytes. A null key or value is empty there, with a 0 in `has_key` or `has_value`; all others have
    a 1. `headers` maps the few rows that have headers to the headers.
    """

    __slots__ = (
        "has_key",
        "has_value",
        "headers",
        "key_ends",
        "keys",
        "offsets",
        "timestamps",
        "value_ends",
        "values",
    )

    def __init__(self) -> None:
        self.offsets = array("q")
        self.timestamps = array("q")
        self.key_ends = array("i", (0,))
        # Lists, because a growing bytearray would be copied several times.
        self.keys: list[bytes] = []
        self.has_key = bytearray()
        self.value_ends = array("i", (0,))
        self.values: list[bytes] = []
        self.has_value = bytearray()
        self.headers: dict[int, Sequence[Header]] = {}

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def is_full(self) -> bool:
        """Whether another batch could make the ends of keys or values exceed an int32."""
        return self.is_full_at(len(self))

    def is_full_at(self, row: int) -> bool:
        """Return the same for the rows before `row`."""
        return self.key_ends[row] + self.value_ends[row] >= _MAX_BYTES

    def extend(self, rows: int) -> None:
        """Append empty rows, which `ColumnDecoder` fills."""
        for numbers in (self.offsets, self.timestamps, self.key_ends, self.value_ends):
            numbers.frombytes(bytes(numbers.itemsize * rows))
        self.has_key += bytes(rows)
        self.has_value += bytes(rows)

    def truncate(self, rows: int) -> None:
        """Remove all rows except the first `rows`; all rows must have been filled."""
        _remove_end(self.keys, self.key_ends[-1] - self.key_ends[rows])
        _remove_end(self.values, self.value_ends[-1] - self.value_ends[rows])
        self.remove_unfilled(rows)

    def remove_unfilled(self, rows: int) -> None:
        """Remove all rows except the first `rows`, without keys and values."""
        if rows == len(self.offsets):
            return
        del self.offsets[rows:], self.timestamps[rows:]
        del self.has_key[rows:], self.has_value[rows:]
        del self.key_ends[rows + 1 :], self.value_ends[rows + 1 :]
        if self.headers:
            self.headers = {row: kept for row, kept in self.headers.items() if row < rows}


def _remove_end(parts: list[bytes], size_bytes: int) -> None:
    """Remove the last `size_bytes` bytes of `parts`."""
    while size_bytes:
        last = parts.pop()
        if len(last) > size_bytes:
            parts.append(last[:-size_bytes])
            return
        size_bytes -= len(last)
