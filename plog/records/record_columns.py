"""`RecordColumns`: records as columns in Arrow's layout, without an object for each record.

columns.py fills them, arrow.py of the client makes Arrow's arrays of them.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from plog.records.record import Header

_MAX_BYTES = 1 << 30


class RecordColumns:
    """Records as columns, each in the layout Arrow gives it: see `decode_columns`.

    `key_ends` and `value_ends` begin with 0, and then say where in `keys` and `values` each one
    ends; null ones are empty there and 0 in `has_key` and `has_value`, which are 1 for all others.
    Headers are few: `headers` holds those rows that have some.
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
        self.keys = bytearray()
        self.has_key = bytearray()
        self.value_ends = array("i", (0,))
        self.values = bytearray()
        self.has_value = bytearray()
        self.headers: dict[int, Sequence[Header]] = {}

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def is_full(self) -> bool:
        """Whether another batch might lead to more keys or values than an int32 can count."""
        return len(self.keys) + len(self.values) >= _MAX_BYTES

    def extend(self, rows: int) -> None:
        """Make room for so many more rows, which `decode_into_columns` fills."""
        for numbers in (self.offsets, self.timestamps, self.key_ends, self.value_ends):
            numbers.frombytes(bytes(numbers.itemsize * rows))
        self.has_key += bytes(rows)
        self.has_value += bytes(rows)

    def truncate(self, rows: int) -> None:
        """Forget all rows but the first `rows`."""
        del self.offsets[rows:], self.timestamps[rows:]
        del self.has_key[rows:], self.has_value[rows:]
        del self.key_ends[rows + 1 :], self.value_ends[rows + 1 :]
        del self.keys[self.key_ends[-1] :], self.values[self.value_ends[-1] :]
        self.headers = {row: kept for row, kept in self.headers.items() if row < rows}
