"""Encode the records of a batch: the counterpart of the decoding functions in codec.py.

The module runs interpreted, or compiled by Cython with the types in record_encoder.pxd (decision
0011); tests check that both forms return the same results. codec.py describes the format of a
record, and re-exports `encode_records`.
"""

# No `from __future__ import annotations`: Debian 12's Cython 0.29 does not support it.
from collections.abc import Iterable, Sequence
from operator import index

from plog.errors import InvalidTimestamp
from plog.records.record import Header, RecordFields

_MAX_INT32, _MAX_UINT64 = (1 << 31) - 1, (1 << 64) - 1

_LAST_BYTES = tuple(bytes((low,)) for low in range(0x80))
_FIRST_BYTES = tuple(bytes((low | 0x80,)) for low in range(0x80))
_VARINTS = _LAST_BYTES + tuple(low + high for high in _LAST_BYTES[1:] for low in _FIRST_BYTES)
"""All varints of one or two bytes, which encode 0 to 0x3FFF."""


def encode_records(records: Iterable[RecordFields], base_offset: int, base_timestamp: int) -> bytes:
    """Return the encoded records of a batch, uncompressed.

    A record with offset -1 gets the next offset. Raises ValueError for an offset that is not
    greater than the previous offset, or exceeds the first offset by 2^31 or more; InvalidTimestamp
    for two timestamps that are 2^63 ms or more apart.
    """
    try:
        return b"".join(_encode(records, base_offset, base_timestamp))
    except OverflowError:  # Compiled code raises this for an int that exceeds an int64.
        raise _too_far_apart() from None


def _encode(records: Iterable[RecordFields], base_offset: int, base_timestamp: int) -> list[bytes]:
    parts: list[bytes] = []
    varints, delta = _VARINTS, -1
    last_headers: Sequence[Header] | None = None
    encoded_headers = b""
    for offset, timestamp, key, value, headers in records:
        # The records of a batch often share one tuple of headers, the empty one or that of the
        # producer. Comparing the contents instead would cost almost as much as encoding them.
        if headers is not last_headers:
            last_headers = headers
            encoded_headers = _encode_headers(headers) if headers else b"\0"
        delta = delta + 1 if offset == -1 else _offset_delta(offset, base_offset, delta)
        distance = timestamp - base_timestamp
        zigzag = distance << 1 if distance >= 0 else (-distance << 1) - 1
        body = b"".join(
            (
                b"\0",
                varints[zigzag] if zigzag <= 0x3FFF else _encode_varint(zigzag),
                varints[delta << 1] if delta <= 0x1FFF else _encode_varint(delta << 1),
                b"\x01" if key is None else _encode_varint(len(key) << 1),
                key or b"",
                b"\x01" if value is None else _encode_varint(len(value) << 1),
                value or b"",
                encoded_headers,
            )
        )
        parts.append(_encode_varint(len(body) << 1))
        parts.append(body)
    # One check is enough for implicit offsets, because deltas only increase.
    if delta > _MAX_INT32:
        raise ValueError(f"record offset {base_offset + delta} is too far above {base_offset}")
    return parts


def _offset_delta(offset: int, base_offset: int, previous_delta: int) -> int:
    """Return the difference between an explicit offset and `base_offset`."""
    delta = index(offset) - base_offset
    if delta <= previous_delta:
        least = base_offset + previous_delta + 1
        raise ValueError(f"record offset {offset} is too low: expected at least {least}")
    if delta > _MAX_INT32:
        raise ValueError(f"record offset {offset} is too far above {base_offset}")
    return delta


def _too_far_apart() -> InvalidTimestamp:
    return InvalidTimestamp(
        "the difference between two timestamps in a batch does not fit in an int64"
    )


def _encode_headers(headers: Sequence[Header]) -> bytes:
    """Return the encoded headers of a record, starting with the number of headers."""
    parts = [_encode_varint(len(headers) << 1)]
    for name, value in headers:
        key = name.encode("utf-8", "surrogateescape")
        parts += (_encode_varint(len(key) << 1), key)
        parts += (b"\x01",) if value is None else (_encode_varint(len(value) << 1), value)
    return b"".join(parts)


def _encode_varint(value: int) -> bytes:
    """Encode an unsigned varint: seven bits per byte, least significant first.

    >>> _encode_varint(300).hex()
    'ac02'
    """
    if value <= 0x3FFF:
        return _VARINTS[value]
    if value > _MAX_UINT64:  # Only a timestamp delta can be this large.
        raise _too_far_apart()
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
