"""The records inside a batch as columns: what Arrow wants, without an object for each record.

The same format and the same care as codec.py, whose small functions this one shares.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from plog.records.batch import BatchHeader, Buffer, CorruptRecords
from plog.records.codec import (
    _INT64_BYTES,
    _MAX_INT64,
    _MIN_INT64,
    Header,
    _check_count,
    _check_end,
    _headers,
    _incomplete,
    _varint,
)

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
    CorruptRecords and leaves `columns` as they were.
    """
    data = payload if isinstance(payload, bytes) else bytes(payload)
    _check_count(data, header)
    rows = len(columns)
    try:
        next_offset, end = _decode_into_columns(data, header, columns, from_offset, rows + max_rows)
        if next_offset == header.next_offset:
            _check_end(data, end, header)
    except IndexError:
        columns.truncate(rows)
        raise _incomplete(header) from None
    except CorruptRecords:
        columns.truncate(rows)
        raise
    return next_offset


def _decode_into_columns(
    data: bytes, header: BatchHeader, columns: RecordColumns, from_offset: int, max_rows: int
) -> tuple[int, int]:
    """As `decode_columns`, where `max_rows` counts the rows before; also where it has stopped."""
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    last_delta, previous_delta = header.last_offset_delta, -1
    is_append_time, append_time = header.timestamp_type != 0, header.max_timestamp
    offsets, timestamps = columns.offsets, columns.timestamps
    position, total, rows = 0, len(data), len(columns)
    for _ in range(header.records_count):
        start = position
        size, position = _varint(data, position)
        end = position + (size >> 1)
        if size & 1 or end > total:
            raise CorruptRecords(f"the record at byte {position} does not fit its batch")
        zigzag = data[position + 1]
        position += 2
        if zigzag > 0x7F:
            zigzag, position = _varint(data, position - 1, _INT64_BYTES)
        timestamp = base_timestamp + (zigzag >> 1 ^ -(zigzag & 1))
        zigzag = data[position]
        position += 1
        if zigzag > 0x7F:
            zigzag, position = _varint(data, position - 1)
        delta = zigzag >> 1
        if zigzag & 1 or not previous_delta < delta <= last_delta:
            raise CorruptRecords(f"the offset before byte {position} is out of order")
        if not _MIN_INT64 <= timestamp <= _MAX_INT64:
            raise CorruptRecords(f"the timestamp before byte {position} is no int64")
        previous_delta = delta
        if base_offset + delta < from_offset:
            position = end
            continue
        if rows == max_rows:
            return base_offset + delta, start
        position = _column_value(
            data, position, end, columns.keys, columns.key_ends, columns.has_key
        )
        position = _column_value(
            data, position, end, columns.values, columns.value_ends, columns.has_value
        )
        if data[position]:
            columns.headers[rows], position = _headers(data, position, end)
        else:
            position += 1
        if position != end:
            raise CorruptRecords(f"a record ends at byte {position}, its length says {end}")
        offsets.append(base_offset + delta)
        timestamps.append(append_time if is_append_time else timestamp)
        rows += 1
    return header.next_offset, position


def _column_value(
    data: bytes, position: int, end: int, values: bytearray, ends: array[int], present: bytearray
) -> int:
    """Add the bytes at `position`, behind their length, to a column; where they end."""
    size = data[position]
    position += 1
    if size > 0x7F:
        size, position = _varint(data, position - 1)
    if size & 1:
        if size != 1:
            raise CorruptRecords(f"a negative length before byte {position}")
        present.append(0)
        ends.append(len(values))
        return position
    stop = position + (size >> 1)
    if stop > end:
        raise CorruptRecords(f"the bytes before byte {position} do not fit their record")
    values += data[position:stop]
    present.append(1)
    ends.append(len(values))
    return stop
