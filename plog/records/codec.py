"""Codec for the uncompressed records of a batch; record_encoder.py is its encoding half.

reader.py and builder.py handle checksums and compression. The codec does not trust its input: any
bytes either decode into records or raise `CorruptRecords`, and no list has more elements than the
bytes can contain.

The module runs interpreted, or compiled by Cython with the types in codec.pxd (decision 0011);
tests check that both forms return the same results. The loops inline the most common forms of an
integer, because a function call costs more than decoding them. In C, nothing checks a slice or an
overflow. Therefore `data` is read byte by byte, which checks the position, and sliced only after
`_span` has checked both ends. Integers are compared before they are added, so that no sum exceeds
64 bits.

A record consists of: length, attributes (one byte, unused), timestamp delta, offset delta, key
length, key, value length, value, number of headers. Each header follows with key length, key, value
length and value. All integers are zigzag varints. A length of -1 means null, which is not valid for
a header's key. Source: KIP-98; Kafka 3.9 DefaultRecord.
"""

# No `from __future__ import annotations`: Debian 12's Cython 0.29 does not support it.
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from plog.records.batch import BatchHeader, Buffer, CorruptRecords, TimestampType
from plog.records.record import NO_OFFSET, Header, Record, RecordFields, RecordHead
from plog.records.record_columns import RecordColumns
from plog.records.record_encoder import encode_records
from plog.records.record_spans import RecordSpans

__all__ = [
    "NO_OFFSET",
    "Header",
    "Record",
    "RecordFields",
    "RecordHead",
    "decode_consumer_records",
    "decode_into_columns",
    "decode_records",
    "decode_spans",
    "encode_records",
    "walk_records",
]

T = TypeVar("T", bound="tuple[Any, ...]")

_MIN_RECORD_BYTES = 7  # One for each field, if key and value are null and there are no headers.
_MIN_INT64, _MAX_INT64 = -(1 << 63), (1 << 63) - 1
_WALKED_AT_ONCE = 100  # Records per call to `_walk`, because compiled generators are slow.


def decode_records(payload: Buffer, header: BatchHeader) -> list[Record]:
    """Return the records in `payload`, the uncompressed bytes after `header`.

    Raises CorruptRecords if their number differs from the header's, they do not fill the payload
    exactly, or their offsets do not increase within the batch.
    """
    return _decode(payload, header, Record, None, 0)


def decode_consumer_records(
    payload: Buffer, header: BatchHeader, record_type: type[T], topic: str, partition: int
) -> list[T]:
    """Return the records in `payload` in the consumer's type, without intermediate objects.

    `record_type` is a named tuple of topic, partition, offset, timestamp, timestamp type, key,
    value, headers and leader epoch. Raises CorruptRecords as `decode_records` does.
    """
    return _decode(payload, header, record_type, topic, partition)


def walk_records(
    payload: Buffer, header: BatchHeader, *, max_headers: int | None = None
) -> Iterator[RecordHead]:
    """Yield the head of each record in `payload`, without an object for each key and value.

    Raises CorruptRecords as `decode_records` does, and for more than `max_headers` headers.
    """
    data = payload if type(payload) is bytes else bytes(payload)
    _check_header(data, header)
    records_left, headers_left = header.records_count, max_headers
    if headers_left is None:
        headers_left = len(data)
    position, delta = 0, -1
    while records_left:
        heads: list[RecordHead] = []
        count = min(records_left, _WALKED_AT_ONCE)
        error = None
        try:
            position, delta, headers_left = _walk(
                heads, data, header, count, position, delta, headers_left
            )
        except IndexError:
            error = _incomplete(header)
        except CorruptRecords as reason:
            error = reason
        yield from heads  # In a corrupt batch, the records before the error.
        if error is not None:
            raise error
        records_left -= count
    _check_end(data, position, header)


def _check_header(data: bytes, header: BatchHeader) -> None:
    count = header.records_count
    if not 0 <= count <= len(data) // _MIN_RECORD_BYTES:
        raise CorruptRecords(f"{len(data)} bytes cannot contain the {count} records of the batch")
    if header.last_offset > _MAX_INT64:
        raise CorruptRecords(f"the last offset, {header.last_offset}, does not fit in an int64")


def _check_end(data: bytes, end: int, header: BatchHeader) -> None:
    if end != len(data):
        raise CorruptRecords(
            f"{len(data) - end} bytes follow the last of {header.records_count} records"
        )


def _incomplete(header: BatchHeader) -> CorruptRecords:
    return CorruptRecords(f"the data ends before all {header.records_count} records are complete")


def _timestamp_deltas(base_timestamp: int) -> tuple[int, int]:
    """Return the lowest and the highest delta with which a timestamp fits in an int64."""
    lowest, highest = _MIN_INT64 - base_timestamp, _MAX_INT64 - base_timestamp
    return max(lowest, _MIN_INT64), min(highest, _MAX_INT64)


def _decode(
    payload: Buffer, header: BatchHeader, record_type: type[T], topic: str | None, partition: int
) -> list[T]:
    """Return `Record` values if `topic` is None, otherwise values of the consumer's type."""
    data = payload if type(payload) is bytes else bytes(payload)
    _check_header(data, header)
    records: list[T] = []
    try:
        end = _decode_into(records, data, header, record_type, topic, partition)
    except IndexError:
        raise _incomplete(header) from None
    _check_end(data, end, header)
    return records


def _decode_into(
    records: list[T],
    data: bytes,
    header: BatchHeader,
    record_type: type[T],
    topic: str | None,
    partition: int,
) -> int:
    """Append all records to `records`, and return the position after them.

    Raises CorruptRecords, and IndexError for missing bytes.
    """
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    lowest, highest = _timestamp_deltas(base_timestamp)
    last_delta, delta = header.last_offset_delta, -1
    kind, epoch = header.timestamp_type, header.partition_leader_epoch
    append_time = header.max_timestamp if kind is TimestampType.LOG_APPEND_TIME else None
    # `tuple.__new__` is faster than a named tuple's own `__new__`, which is written in Python. In
    # C, `cut` is the address of the bytes (codec.pxd).
    new, cut, position = tuple.__new__, data, 0
    headers: Sequence[Header]
    fields: tuple[Any, ...]
    for _ in range(header.records_count):
        end, position, delta, timestamp_delta = _head(data, position, delta, last_delta)
        if not lowest <= timestamp_delta <= highest:
            raise CorruptRecords(f"the timestamp before byte {position} does not fit in an int64")
        timestamp = base_timestamp + timestamp_delta if append_time is None else append_time
        start, position = _span(data, position, end)
        key = cut[start:position] if start else None
        start, position = _span(data, position, end)
        value = cut[start:position] if start else None
        byte = data[position]
        if byte:
            headers, position = _headers(data, position, end), end
        else:
            headers, position = (), position + 1
        if position != end:
            raise _wrong_end(position, end)
        offset = base_offset + delta
        if topic is None:
            fields = (offset, timestamp, key, value, headers)
        else:
            fields = (topic, partition, offset, timestamp, kind, key, value, headers, epoch)
        records.append(new(record_type, fields))
    return position


def decode_into_columns(
    data: bytes, header: BatchHeader, columns: RecordColumns, row: int, from_offset: int
) -> tuple[int, int, int]:
    """Fill rows of `columns`, starting at `row`, with the records at and after `from_offset`.

    Only column_decoder.py calls this function. Returns the row after the last filled row, the
    position where decoding stopped, and the offset delta of the next record, or -1 at the end.
    Raises CorruptRecords, and IndexError for missing bytes.
    """
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    lowest, highest = _timestamp_deltas(base_timestamp)
    last_delta, delta, next_delta = header.last_offset_delta, -1, -1
    is_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    append_time, cut, position, rows = header.max_timestamp, data, 0, len(columns)
    offsets, timestamps = columns.offsets, columns.timestamps
    has_key, key_ends, has_value = columns.has_key, columns.key_ends, columns.has_value
    value_ends, key_end, value_end = columns.value_ends, key_ends[row], columns.value_ends[row]
    keys: list[bytes] = []
    values: list[bytes] = []
    for _ in range(header.records_count):
        next_position = position
        end, position, delta, timestamp_delta = _head(data, position, delta, last_delta)
        if not lowest <= timestamp_delta <= highest:
            raise CorruptRecords(f"the timestamp before byte {position} does not fit in an int64")
        if base_offset + delta < from_offset:
            position = end
            continue
        if row == rows:
            position, next_delta = next_position, delta
            break
        start, position = _span(data, position, end)
        if start:
            keys.append(cut[start:position])
            key_end += position - start
            has_key[row] = 1
        start, position = _span(data, position, end)
        if start:
            values.append(cut[start:position])
            value_end += position - start
            has_value[row] = 1
        byte = data[position]
        if byte:
            columns.headers[row], position = _headers(data, position, end), end
        else:
            position += 1
        if position != end:
            raise _wrong_end(position, end)
        offsets[row] = base_offset + delta
        timestamps[row] = append_time if is_append_time else base_timestamp + timestamp_delta
        row += 1
        key_ends[row], value_ends[row] = key_end, value_end
    # Joined here, while they are in the processor's cache, so that the next call can use their
    # memory again. Without keys or values, this adds nothing.
    if keys:
        columns.keys.append(b"".join(keys))
    if values:
        columns.values.append(b"".join(values))
    return row, position, next_delta


def decode_spans(payload: Buffer, header: BatchHeader, spans: RecordSpans) -> None:
    """Set `spans` to the records in `payload`, without an object for each record.

    Raises CorruptRecords as `decode_records` does.
    """
    data = payload if type(payload) is bytes else bytes(payload)
    _check_header(data, header)
    spans.begin(header.records_count)
    try:
        end = _fill_spans(data, header, spans)
    except IndexError:
        raise _incomplete(header) from None
    _check_end(data, end, header)


def _fill_spans(data: bytes, header: BatchHeader, spans: RecordSpans) -> int:
    """Fill the rows of `spans`, and return the position after the last record.

    Raises CorruptRecords, and IndexError for missing bytes.
    """
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    lowest, highest = _timestamp_deltas(base_timestamp)
    last_delta, delta, position = header.last_offset_delta, -1, 0
    is_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    append_time = header.max_timestamp
    offsets, timestamps, starts = spans.offsets, spans.timestamps, spans.starts
    key_starts, key_ends, has_value = spans.key_starts, spans.key_ends, spans.has_value
    for row in range(header.records_count):
        end, position, delta, timestamp_delta = _head(data, position, delta, last_delta)
        if not lowest <= timestamp_delta <= highest:
            raise CorruptRecords(f"the timestamp before byte {position} does not fit in an int64")
        start, position = _span(data, position, end)
        key_starts[row], key_ends[row] = start, position
        start, position = _span(data, position, end)
        has_value[row] = start != 0
        byte = data[position]
        if byte:
            _skip_headers(data, position, end, len(data))
            position = end
        else:
            position += 1
        if position != end:
            raise _wrong_end(position, end)
        offsets[row] = base_offset + delta
        timestamps[row] = append_time if is_append_time else base_timestamp + timestamp_delta
        starts[row + 1] = end
    return position


def _walk(
    heads: list[RecordHead],
    data: bytes,
    header: BatchHeader,
    count: int,
    position: int,
    delta: int,
    headers_left: int,
) -> tuple[int, int, int]:
    """Append the heads of the next `count` records; return new values of the last three parameters.

    Raises the same errors as `_decode_into`, after appending the records before the error.
    """
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    lowest, highest = _timestamp_deltas(base_timestamp)
    last_delta, new = header.last_offset_delta, tuple.__new__
    append_time = None
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        append_time = header.max_timestamp
    for _ in range(count):
        end, position, delta, timestamp_delta = _head(data, position, delta, last_delta)
        if not lowest <= timestamp_delta <= highest:
            raise CorruptRecords(f"the timestamp before byte {position} does not fit in an int64")
        timestamp = base_timestamp + timestamp_delta if append_time is None else append_time
        key_start, position = _span(data, position, end)
        _value_start, position = _span(data, position, end)
        byte = data[position]
        if byte:
            headers_left, position = _skip_headers(data, position, end, headers_left), end
        else:
            position += 1
        if position != end:
            raise _wrong_end(position, end)
        heads.append(new(RecordHead, (base_offset + delta, timestamp, key_start != 0)))
    return position, delta, headers_left


def _head(
    data: bytes, position: int, previous_delta: int, last_delta: int
) -> tuple[int, int, int, int]:
    """Return a record's end, the position of its key, and its offset and timestamp deltas."""
    # Negative numbers are odd in zigzag encoding, so `& 1` below rejects them.
    size, position = _varint(data, position, 32)
    end = position + (size >> 1)
    if size & 1 or end > len(data):
        raise CorruptRecords(f"the record at byte {position} extends beyond its batch")
    byte = data[position + 1]  # After the attributes, whose bits are all unused.
    if byte <= 0x7F:
        zigzag, position = byte, position + 2
    else:
        zigzag, position = _varint(data, position + 1, 64)
    timestamp_delta = zigzag >> 1 ^ -(zigzag & 1)
    byte = data[position]
    if byte <= 0x7F:
        zigzag, position = byte, position + 1
    else:
        zigzag, position = _varint(data, position, 32)
    delta = zigzag >> 1
    if zigzag & 1 or not previous_delta < delta <= last_delta:
        raise CorruptRecords(f"the offset before byte {position} is out of order")
    return end, position, delta, timestamp_delta


def _wrong_end(position: int, end: int) -> CorruptRecords:
    return CorruptRecords(
        f"a record ends at byte {position}, but its length requires it to end at byte {end}"
    )


def _varint(data: bytes, position: int, bits: int) -> tuple[int, int]:
    """Return the varint at `position`, without decoding zigzag, and the position after it.

    Raises CorruptRecords if the varint has more than `bits` bits (32 or 64).

    >>> _varint(bytes.fromhex("ac02"), 0, 32)
    (300, 2)
    """
    byte = data[position]
    if byte <= 0x7F:
        return byte, position + 1
    next_byte = data[position + 1]
    if next_byte <= 0x7F:
        return byte + (next_byte << 7) - 0x80, position + 2
    return _long_varint(data, position, bits)


def _long_varint(data: bytes, position: int, bits: int) -> tuple[int, int]:
    """Decode a varint of any length; otherwise like `_varint`."""
    value = 0
    for shift in range(0, bits, 7):
        byte = data[position]
        position += 1
        part = byte & 0x7F
        if shift > bits - 7 and part >> (bits - shift):  # Bits of the last byte that do not fit.
            break
        value |= part << shift
        if byte <= 0x7F:
            return value, position
    raise CorruptRecords(f"a varint before byte {position} has more than {bits} bits")


def _span(data: bytes, position: int, end: int) -> tuple[int, int]:
    """Return the start and end of the bytes after the length at `position`; null starts at 0.

    Raises CorruptRecords if the bytes exceed `end`, the end of the record.
    """
    byte = data[position]
    if byte <= 0x7F:
        size, position = byte, position + 1
    else:
        size, position = _varint(data, position, 32)
    if size & 1:
        if size == 1:
            return 0, position
        raise CorruptRecords(f"the length before byte {position} is negative")
    stop = position + (size >> 1)
    if stop > end:
        raise CorruptRecords(f"{size >> 1} bytes at byte {position} extend beyond their record")
    return position, stop


def _header_count(data: bytes, position: int, end: int) -> tuple[int, int]:
    """Return the number of headers in a record, and the position of the first header."""
    count, position = _varint(data, position, 32)
    # `count` is twice the number (zigzag), and a header has at least two bytes.
    if count & 1 or count > end - position:
        raise CorruptRecords(f"the header count before byte {position} is too large for its record")
    return count >> 1, position


def _headers(data: bytes, position: int, end: int) -> Sequence[Header]:
    """Return the headers of a record, which must end at `end`."""
    cut = data
    headers: list[Header] = []
    count, position = _header_count(data, position, end)
    for _ in range(count):
        start, position = _span(data, position, end)
        if not start:
            raise CorruptRecords(f"the header before byte {position} has no key")
        key = cut[start:position].decode("utf-8", "surrogateescape")
        start, position = _span(data, position, end)
        headers.append((key, cut[start:position] if start else None))
    if position != end:
        raise _wrong_end(position, end)
    return tuple(headers)


def _skip_headers(data: bytes, position: int, end: int, headers_left: int) -> int:
    """Skip the headers of a record, which must end at `end`; return the remaining limit."""
    count, position = _header_count(data, position, end)
    if count > headers_left:
        raise CorruptRecords(f"the records before byte {position} have too many headers")
    for _ in range(count):
        start, position = _span(data, position, end)
        if not start:
            raise CorruptRecords(f"the header before byte {position} has no key")
        _value_start, position = _span(data, position, end)
    if position != end:
        raise _wrong_end(position, end)
    return headers_left - count
