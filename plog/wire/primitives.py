"""The smallest pieces of Kafka's encoding: varints, and what may stand for records.

Everything else of a message is encoded by code that decoder.py and encoder.py generate, which calls
the functions below only for what does not fit in one byte. Source: the protocol guide of Kafka 4.3,
"Protocol Primitive Types"; KIP-482 (compact lengths, tagged fields).
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

from plog.errors import PlogError

Buffer: TypeAlias = bytes | bytearray | memoryview

_MAX_VARINT_BYTES = 5
MAX_STRING_BYTES = 0x7FFF


class WireError(PlogError):
    """The bytes are not what their schema says, or a value cannot be written by it."""


class Passthrough(Protocol):
    """Records that lie elsewhere, such as a slice of a file: only their length is known here."""

    @property
    def nbytes(self) -> int:
        """How many bytes will follow when this is sent."""
        ...


Part: TypeAlias = bytes | memoryview | Passthrough
"""A piece of an encoded message. Only records travel as anything but bytes."""


def encode_varint(value: int) -> bytes:
    """An unsigned varint: seven bits a byte, least significant first.

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
    """The unsigned varint at `position`, and where the next byte is.

    Raises WireError if it is longer than five bytes, IndexError if the data ends inside it.

    >>> decode_varint(bytes.fromhex("ac02"), 0)
    (300, 2)
    """
    value = 0
    for shift in range(0, 7 * _MAX_VARINT_BYTES, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte <= 0x7F:
            return value, position
    raise WireError(f"a varint before byte {position} is longer than {_MAX_VARINT_BYTES} bytes")


SHORT_VARINTS = tuple(bytes([value]) for value in range(0x80))
"""The varints of one byte, ready made: nearly all lengths and counts are that short."""


def encode_string_length(length: int) -> bytes:
    """The compact form of a string's length. Raises WireError above 32767, Kafka's limit."""
    if length > MAX_STRING_BYTES:
        raise WireError(f"a string of {length} bytes is longer than {MAX_STRING_BYTES}")
    return encode_varint(length + 1)


def records_size(records: Part) -> int:
    """The length in bytes of what stands for records."""
    return len(records) if isinstance(records, bytes) else records.nbytes


def skip_tagged_fields(data: Buffer, position: int) -> int:
    """Where the tagged fields that begin at `position` end. Their values are dropped (KIP-482)."""
    count, position = decode_varint(data, position)
    return skip_counted_fields(data, position, count)


def skip_counted_fields(data: Buffer, position: int, count: int) -> int:
    """As `skip_tagged_fields`, where their count has been read."""
    for _ in range(count):
        _, position = decode_varint(data, position)
        size, position = decode_varint(data, position)
        position += size
    if position > len(data):
        raise WireError(f"tagged fields end at byte {position} of {len(data)}")
    return position
