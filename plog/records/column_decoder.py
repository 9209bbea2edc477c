"""Decode batches into `RecordColumns` without creating an object for each record.

The loop over the records is in codec.py, which is compiled.
"""

from __future__ import annotations

from plog.records.batch import BatchHeader, Buffer, CorruptRecords
from plog.records.codec import _check_end, _check_header, _incomplete, decode_into_columns
from plog.records.record_columns import RecordColumns

_MAX_END = (1 << 31) - 1  # Arrow's offsets into keys and values are int32.


def decode_columns(
    payload: Buffer,
    header: BatchHeader,
    columns: RecordColumns,
    *,
    from_offset: int = 0,
    max_rows: int,
) -> int:
    """Append up to `max_rows` (at least one) records, starting at `from_offset`, to `columns`.

    Returns the offset of the first remaining record, or the offset after the batch. Raises
    CorruptRecords without changing `columns`; ValueError if the columns are too full.
    """
    data = payload if type(payload) is bytes else bytes(payload)
    _check_header(data, header)
    if max(len(columns.keys), len(columns.values)) + len(data) > _MAX_END:
        raise ValueError("cannot append to full columns; start new ones")
    rows_before = len(columns)
    # Resized in advance, because the compiled loop uses views of the arrays, which prevent
    # resizing.
    columns.extend(min(max_rows, header.records_count))
    try:
        rows, end, next_delta = decode_into_columns(data, header, columns, rows_before, from_offset)
        # If records remain, the call that decodes the last of them checks the end.
        if next_delta < 0:
            _check_end(data, end, header)
    except IndexError:
        columns.truncate(rows_before)
        raise _incomplete(header) from None
    except CorruptRecords:
        columns.truncate(rows_before)
        raise
    if rows < len(columns):  # Records before `from_offset` were skipped.
        columns.truncate(rows)
    return header.next_offset if next_delta < 0 else header.base_offset + next_delta
