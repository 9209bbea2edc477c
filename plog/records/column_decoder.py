"""Decode batches into `RecordColumns` without creating an object for each record.

The loop over the records is in codec.py, which is compiled.
"""

from __future__ import annotations

from plog.records.batch import BatchHeader, Buffer, CorruptRecords
from plog.records.codec import _check_end, _check_header, _incomplete, decode_into_columns
from plog.records.record_columns import RecordColumns

_MAX_END = (1 << 31) - 1  # Arrow's offsets into keys and values are int32.


class ColumnDecoder:
    """Appends the records of consecutive batches to `columns`, up to `max_rows` rows.

    `columns` has empty rows at its end until `close` removes them. They are appended once for all
    batches, because that takes longer than decoding a small batch. `records_count` is the number
    of records in these batches, or more.
    """

    __slots__ = ("_columns", "_max_row", "_rows", "is_full", "row")

    def __init__(self, columns: RecordColumns, *, max_rows: int, records_count: int) -> None:
        self._columns = columns
        self.row = len(columns)
        """The number of rows that have been filled, including those from before."""
        self._max_row = self.row + max_rows
        self.is_full = max_rows == 0 or columns.is_full
        """Whether `max_rows` rows are filled, or the columns cannot contain more bytes."""
        columns.extend(min(max_rows, records_count))
        self._rows = len(columns)

    def decode(self, payload: Buffer, header: BatchHeader, *, from_offset: int = 0) -> int:
        """Append the records of a batch that are at or after `from_offset`, while rows are left.

        Returns the offset of the first remaining record, or the offset after the batch. Raises
        CorruptRecords without appending any; ValueError if the columns contain too many bytes.
        """
        data = payload if type(payload) is bytes else bytes(payload)
        columns, row = self._columns, self.row
        _check_header(data, header)
        if max(columns.key_ends[row], columns.value_ends[row]) + len(data) > _MAX_END:
            raise ValueError("cannot append to full columns; start new ones")
        try:
            end_row, end, next_delta = decode_into_columns(data, header, columns, row, from_offset)
            # If records remain, the call that decodes the last of them checks the end.
            if next_delta < 0:
                _check_end(data, end, header)
        except IndexError:
            self._restart(row)
            raise _incomplete(header) from None
        except CorruptRecords:
            self._restart(row)
            raise
        self.row = end_row
        self.is_full = end_row == self._max_row or columns.is_full_at(end_row)
        return header.next_offset if next_delta < 0 else header.base_offset + next_delta

    def close(self) -> None:
        """Remove the rows that have not been filled."""
        self._columns.remove_unfilled(self.row)

    def _restart(self, row: int) -> None:
        """Empty the rows from `row` on."""
        self._columns.remove_unfilled(row)
        self._columns.extend(self._rows - row)
