"""The records inside a batch as columns: what Arrow wants, without an object for each record.

The loop itself is in codec.py, among those with the same care, and compiled with them.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from plog.records.batch import BatchHeader, Buffer, CorruptRecords
from plog.records.codec import (
    Header,
    _check_end,
    _check_header,
    _incomplete,
    decode_into_columns,
)

_MAX_BYTES = 1 << 30
_MAX_END = (1 << 31) - 1


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


def decode_columns(
    payload: Buffer,
    header: BatchHeader,
    columns: RecordColumns,
    *,
    from_offset: int = 0,
    max_rows: int,
) -> int:
    """Add up to `max_rows` (one or more) of the records from `from_offset` on to `columns`.

    Returns the offset to go on from: that behind the batch when there are no more. Raises
    CorruptRecords and leaves `columns` as they were; ValueError if they were too full to count.
    """
    data = payload if type(payload) is bytes else bytes(payload)
    _check_header(data, header)
    if max(len(columns.keys), len(columns.values)) + len(data) > _MAX_END:
        raise ValueError("these columns are full: begin new ones")
    rows_before = len(columns)
    columns.extend(min(max_rows, header.records_count))
    try:
        rows, end, next_delta = decode_into_columns(data, header, columns, rows_before, from_offset)
        if next_delta < 0:
            _check_end(data, end, header)
    except IndexError:
        columns.truncate(rows_before)
        raise _incomplete(header) from None
    except CorruptRecords:
        columns.truncate(rows_before)
        raise
    if rows < len(columns):
        columns.truncate(rows)
    return header.next_offset if next_delta < 0 else header.base_offset + next_delta
