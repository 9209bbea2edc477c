"""Primitives of Kafka's encoding: varints, tagged fields, and the representation of records.

The generated code of decoder.py and encoder.py handles all other types, and also one-byte varints.
Source: Kafka 4.3's protocol guide, "Protocol Primitive Types"; KIP-482 (compact lengths, tagged
fields).
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

from plog.errors import PlogError

Buffer: TypeAlias = bytes | bytearray | memoryview

_MAX_VARINT_BYTES = 5  # Lengths, counts and tags have at most 32 bits, 7 in each byte.
MAX_STRING_BYTES = 0x7FFF  # Lengths that are not compact are an int16.


class WireError(PlogError):
    """The bytes do not match their schema, or the schema cannot represent a value."""


class Passthrough(Protocol):
    """Records that are not in memory, such as a slice of a file; only their length is known."""

    @property
    def nbytes(self) -> int:
        """The number of bytes that are sent for these records."""
        ...


Part: TypeAlias = bytes | memoryview | Passthrough
"""A part of an encoded message. Only records can have a type other than bytes."""


def encode_varint(value: int) -> bytes:
    """Encode an unsigned varint: seven bits per byte, least significant first.

    >>> encode_varint(300).hex()
    'ac02'
    """
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def decode_varint(data: Buffer, position: int) -> tuple[int, int]:
    """Return the unsigned varint at `position`, and the position after it.

    Raises WireError if it is longer than five bytes, IndexError if the data ends inside it.

    >>> decode_varint(bytes.fromhex("ac02"), 0)
    (300, 2)
    """
    value = 0
    for shift in range(0, 7 * _MAX_VARINT_BYTES, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        # Five bytes contain up to 35 bits. Values above 32 bits need no separate check: as lengths
        # and counts, they exceed the data.
        if byte <= 0x7F:
            return value, position
    raise WireError(f"a varint before byte {position} is longer than {_MAX_VARINT_BYTES} bytes")


SHORT_VARINTS = tuple(bytes([value]) for value in range(0x80))
"""All varints of one byte, precomputed because nearly all lengths and counts fit in one byte."""


def encode_string_length(length: int) -> bytes:
    """Return the compact length of a string. Raises WireError above 32767, Kafka's limit."""
    # Compact lengths have no such limit, but Kafka's generated code also rejects longer strings.
    if length > MAX_STRING_BYTES:
        raise WireError(f"a string is {length} bytes long; at most {MAX_STRING_BYTES} are allowed")
    return encode_varint(length + 1)


def records_size(records: Part) -> int:
    """Return the size of records in bytes."""
    return len(records) if isinstance(records, bytes) else records.nbytes


def skip_tagged_fields(data: Buffer, position: int) -> int:
    """Skip the tagged fields at `position`, and return the position after them (KIP-482)."""
    count, position = decode_varint(data, position)
    return skip_counted_fields(data, position, count)


def skip_counted_fields(data: Buffer, position: int, count: int) -> int:
    """Skip `count` tagged fields at `position`, and return the position after them."""
    for _ in range(count):
        _, position = decode_varint(data, position)
        size, position = decode_varint(data, position)
        position += size
    # One check at the end is enough: the varint after an invalid size raises IndexError.
    if position > len(data):
        raise WireError(
            f"tagged fields end at byte {position}, beyond the {len(data)} bytes of data"
        )
    return position
