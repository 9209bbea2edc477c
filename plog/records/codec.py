"""The records inside a batch, uncompressed: bytes to `Record` values and back.

Knows nothing of checksums or compression (reader.py and builder.py do), and trusts no byte:
whatever they are, decoding ends with records or with `CorruptRecords`, and no list grows larger
than the bytes could fill. The most common forms of an integer are spelled out in the loops, for a
call costs more than the work; Cython can compile this module as it stands.

A record: length, attributes (one byte, unused), timestamp delta, offset delta, key length, key,
value length, value, number of headers, and for each its key length, key, value length, value. All
integers are zigzag varints; a length of -1 means null, which a header's key cannot be.
Source: KIP-98; Kafka 3.9 DefaultRecord.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

from plog.errors import InvalidTimestamp
from plog.records.batch import BatchHeader, Buffer, CorruptRecords, TimestampType

Header: TypeAlias = tuple[str, bytes | None]

NO_OFFSET = -1
"""The offset of a record that follows the one before it."""

T = TypeVar("T", bound=tuple[Any, ...])

_MIN_RECORD_BYTES = 7
_INT32_BYTES, _INT64_BYTES = 5, 10
_MIN_INT64, _MAX_INT64 = -(1 << 63), (1 << 63) - 1
_SHORT_VARINTS = tuple(bytes((value,)) for value in range(0x80))


class Record(NamedTuple):
    """One record of a log. `timestamp` is in ms, -1 where the producer gave none.

    Header keys are text; bytes in them that are not UTF-8 survive as surrogates (PEP 383), so that
    what was read can be written again unchanged.
    """

    offset: int = NO_OFFSET
    timestamp: int = -1
    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[Header] = ()


RecordFields: TypeAlias = tuple[int, int, bytes | None, bytes | None, Sequence[Header]]
"""A `Record`, or a plain tuple of the same fields, which costs half as much to make."""


class RecordHead(NamedTuple):
    """What `walk_records` tells of a record."""

    offset: int
    timestamp: int
    has_key: bool


def decode_records(payload: Buffer, header: BatchHeader) -> list[Record]:
    """The records in `payload`, the uncompressed bytes behind `header`.

    Raises CorruptRecords if they are not as many as the header says, do not fill the payload
    exactly, or have offsets that do not rise within the batch.
    """
    data = payload if isinstance(payload, bytes) else bytes(payload)
    _check_count(data, header)
    try:
        records, end = _decode(data, header)
    except IndexError:
        raise _incomplete(header) from None
    _check_end(data, end, header)
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        append_time = header.max_timestamp
        return [record._replace(timestamp=append_time) for record in records]
    return records


def decode_consumer_records(
    payload: Buffer, header: BatchHeader, record_type: type[T], topic: str, partition: int
) -> list[T]:
    """The records in `payload` as a consumer gives them out, made in one go.

    `record_type` is a named tuple of topic, partition, offset, timestamp, timestamp type, key,
    value, headers and leader epoch. Raises CorruptRecords as `decode_records` does.
    """
    data = payload if isinstance(payload, bytes) else bytes(payload)
    _check_count(data, header)
    try:
        records, end = _decode_for_consumer(data, header, record_type, topic, partition)
    except IndexError:
        raise _incomplete(header) from None
    _check_end(data, end, header)
    return records


def walk_records(
    payload: Buffer, header: BatchHeader, *, max_headers: int | None = None
) -> Iterator[RecordHead]:
    """Offset and timestamp of each record in `payload`, one after the other, in no memory.

    Raises CorruptRecords as `decode_records` does, and for more headers than there may be.
    """
    data = payload if isinstance(payload, bytes) else bytes(payload)
    _check_count(data, header)
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    new, append_time = tuple.__new__, None
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        append_time = header.max_timestamp
    last_delta, previous_delta = header.last_offset_delta, -1
    position, total = 0, len(data)
    headers_left = total if max_headers is None else max_headers
    try:
        for _ in range(header.records_count):
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
            has_key = not data[position] & 1  # The sign of its length.
            position = _skip_nullable(data, _skip_nullable(data, position))
            if data[position]:
                position, headers_left = _skip_headers(data, position, end, headers_left)
            else:
                position += 1
            if position != end:
                raise CorruptRecords(f"a record ends at byte {position}, its length says {end}")
            if append_time is not None:
                timestamp = append_time
            yield new(RecordHead, (base_offset + delta, timestamp, has_key))
    except IndexError:
        raise _incomplete(header) from None
    _check_end(data, position, header)


def _check_count(data: bytes, header: BatchHeader) -> None:
    count = header.records_count
    if not 0 <= count <= len(data) // _MIN_RECORD_BYTES:
        raise CorruptRecords(f"{len(data)} bytes of records cannot be the {count} of the header")


def _check_end(data: bytes, end: int, header: BatchHeader) -> None:
    if end != len(data):
        raise CorruptRecords(
            f"{len(data) - end} bytes follow the last of {header.records_count} records"
        )


def _incomplete(header: BatchHeader) -> CorruptRecords:
    return CorruptRecords(f"the records end before all {header.records_count} are complete")


def _decode(data: bytes, header: BatchHeader) -> tuple[list[Record], int]:
    """All records, and where they end. Raises CorruptRecords, and IndexError for missing bytes."""
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    last_delta, previous_delta = header.last_offset_delta, -1
    new, record_type = tuple.__new__, Record
    headers: Sequence[Header]
    records: list[Record] = []
    position, total = 0, len(data)
    for _ in range(header.records_count):
        size, position = _varint(data, position)
        end = position + (size >> 1)
        if size & 1 or end > total:
            raise CorruptRecords(f"the record at byte {position} does not fit its batch")
        zigzag = data[position + 1]  # Behind the attributes, where no bit has a meaning yet.
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
        key, position = _nullable(data, position)
        value, position = _nullable(data, position)
        if data[position]:
            headers, position = _headers(data, position, end)
        else:
            headers = ()
            position += 1
        if position != end:
            raise CorruptRecords(f"a record ends at byte {position}, its length says {end}")
        records.append(new(record_type, (base_offset + delta, timestamp, key, value, headers)))
    return records, position


def _decode_for_consumer(
    data: bytes, header: BatchHeader, record_type: type[T], topic: str, partition: int
) -> tuple[list[T], int]:
    """As `_decode`, in the form of `decode_consumer_records`."""
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    last_delta, previous_delta = header.last_offset_delta, -1
    timestamp_type = header.timestamp_type
    is_append_time, append_time = timestamp_type != 0, header.max_timestamp
    new, epoch = tuple.__new__, header.partition_leader_epoch
    headers: Sequence[Header]
    records: list[T] = []
    position, total = 0, len(data)
    for _ in range(header.records_count):
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
        key, position = _nullable(data, position)
        value, position = _nullable(data, position)
        if data[position]:
            headers, position = _headers(data, position, end)
        else:
            headers = ()
            position += 1
        if position != end:
            raise CorruptRecords(f"a record ends at byte {position}, its length says {end}")
        if is_append_time:
            timestamp = append_time
        offset = base_offset + delta
        fields = (topic, partition, offset, timestamp, timestamp_type, key, value, headers, epoch)
        records.append(new(record_type, fields))
    return records, position


def _varint(data: bytes, position: int, max_bytes: int = _INT32_BYTES) -> tuple[int, int]:
    """The unsigned varint at `position`, zigzag not undone, and where the next byte is.

    >>> _varint(bytes.fromhex("ac02"), 0)
    (300, 2)
    """
    value = data[position]
    if value <= 0x7F:
        return value, position + 1
    byte = data[position + 1]
    if byte <= 0x7F:
        return value + (byte << 7) - 0x80, position + 2
    return _long_varint(data, position, max_bytes)


def _long_varint(data: bytes, position: int, max_bytes: int) -> tuple[int, int]:
    """A varint of any length up to `max_bytes`, which is 5 for an int32 and 10 for an int64."""
    value = 0
    for shift in range(0, 7 * max_bytes, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte <= 0x7F:
            if value >> (32 if max_bytes == _INT32_BYTES else 64):
                break
            return value, position
    raise CorruptRecords(f"a varint before byte {position} is too large for {max_bytes} bytes")


def _nullable(data: bytes, position: int) -> tuple[bytes | None, int]:
    """The bytes at `position` behind their length, None for length -1, and where they end."""
    size = data[position]
    position += 1
    if size > 0x7F:
        size, position = _varint(data, position - 1)
    if size & 1:
        if size == 1:
            return None, position
        raise CorruptRecords(f"a negative length before byte {position}")
    end = position + (size >> 1)
    # Where the data ends first, the slice is short; the caller sees that the record's end is not.
    return data[position:end], end


def _skip_nullable(data: bytes, position: int) -> int:
    """Where the bytes end whose length is at `position`."""
    size = data[position]
    position += 1
    if size > 0x7F:
        size, position = _varint(data, position - 1)
    if size & 1:
        if size == 1:
            return position
        raise CorruptRecords(f"a negative length before byte {position}")
    return position + (size >> 1)


def _skip_headers(data: bytes, position: int, end: int, headers_left: int) -> tuple[int, int]:
    """Where the headers of a record end, and how many more there may be."""
    count, position = _varint(data, position)
    if count & 1 or count > end - position:
        raise CorruptRecords(f"the header count before byte {position} does not fit its record")
    headers_left -= count >> 1
    if headers_left < 0:
        raise CorruptRecords(f"the records before byte {position} have too many headers")
    for _ in range(count >> 1):
        if data[position] & 1:
            raise CorruptRecords(f"a header without a key before byte {position}")
        position = _skip_nullable(data, _skip_nullable(data, position))
    return position, headers_left


def _headers(data: bytes, position: int, end: int) -> tuple[Sequence[Header], int]:
    """The headers of a record that ends at `end`, and where they do."""
    count, position = _varint(data, position)
    if count & 1 or count > end - position:  # Each takes two bytes or more; `count` is doubled.
        raise CorruptRecords(f"the header count before byte {position} does not fit its record")
    headers: list[Header] = []
    for _ in range(count >> 1):
        key, position = _nullable(data, position)
        if key is None:
            raise CorruptRecords(f"a header without a key before byte {position}")
        value, position = _nullable(data, position)
        headers.append((key.decode("utf-8", "surrogateescape"), value))
    return tuple(headers), position


def encode_records(records: Iterable[RecordFields], base_offset: int, base_timestamp: int) -> bytes:
    """The records part of a batch, uncompressed.

    A record whose offset is -1 gets the one behind its predecessor's. Raises ValueError where an
    offset is not above the one before it, InvalidTimestamp where two timestamps lie 2^63 ms apart.
    """
    parts: list[bytes] = []
    append, join, short = parts.append, b"".join, _SHORT_VARINTS
    next_offset = base_offset
    for offset, timestamp, key, value, headers in records:
        if offset == NO_OFFSET:
            offset = next_offset
        elif offset < next_offset:
            raise ValueError(f"record offset {offset} where {next_offset} or more is due")
        next_offset = offset + 1
        delta = timestamp - base_timestamp
        delta = delta << 1 if delta >= 0 else (-delta << 1) - 1
        offset_delta = (offset - base_offset) << 1
        body = join(
            (
                b"\0",
                short[delta] if delta <= 0x7F else _encode_varint(delta),
                short[offset_delta] if offset_delta <= 0x7F else _encode_varint(offset_delta),
                b"\x01" if key is None else _encode_varint(len(key) << 1),
                key or b"",
                b"\x01" if value is None else _encode_varint(len(value) << 1),
                value or b"",
                _encode_headers(headers) if headers else b"\0",
            )
        )
        append(_encode_varint(len(body) << 1))
        append(body)
    return join(parts)


def _encode_headers(headers: Sequence[Header]) -> bytes:
    """The number of headers and each of them."""
    parts = [_encode_varint(len(headers) << 1)]
    for name, value in headers:
        key = name.encode("utf-8", "surrogateescape")
        parts += (_encode_varint(len(key) << 1), key)
        parts += (b"\x01",) if value is None else (_encode_varint(len(value) << 1), value)
    return b"".join(parts)


def _encode_varint(value: int) -> bytes:
    """An unsigned varint: seven bits a byte, least significant first.

    >>> _encode_varint(300).hex()
    'ac02'
    """
    if value <= 0x7F:
        return _SHORT_VARINTS[value]
    if value <= 0x3FFF:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value >> 64:  # Only a timestamp's distance from the first one can be that large.
        raise InvalidTimestamp("two timestamps of a batch are further apart than an int64 says")
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
