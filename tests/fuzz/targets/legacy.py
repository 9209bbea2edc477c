"""Messages of magic 0 and 1, which only an adopted log contains.

The first byte says whether the checksum is corrected first. Messages that can be read can be
written as a batch of magic 2 with the same records.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from plog.records.batch import Compression, CorruptRecords
from plog.records.compression import compress
from plog.records.legacy import read_legacy_batch, upgrade
from plog.records.reader import iter_records
from tests.fuzz.target import Target

_MAX_BYTES = 100_000
_CRC, _CRC_END, _SIZE = 12, 16, 8


def fuzz(data: bytes) -> None:
    """Read one entry and convert it to a batch."""
    if not data:
        return
    message = _correct(data[1:]) if data[0] & 1 else data[1:]
    try:
        batch = read_legacy_batch(message, max_bytes=_MAX_BYTES)
    except CorruptRecords:
        return
    assert 0 < batch.size_bytes <= len(message)
    try:
        upgraded = b"".join(upgrade([batch]))
    except CorruptRecords:
        return
    converted = list(iter_records(upgraded, from_offset=batch.records[0].offset))
    assert [(one.offset, one.key, one.value) for one in converted] == [
        (one.offset, one.key, one.value) for one in batch.records
    ]


def _correct(data: bytes) -> bytes:
    if len(data) < _CRC_END + 2:
        return data
    size = (len(data) - _CRC).to_bytes(4, "big")
    crc = zlib.crc32(data[_CRC_END:]).to_bytes(4, "big")
    return data[:_SIZE] + size + crc + data[_CRC_END:]


def _message(magic: int, value: bytes, attributes: int = 0, offset: int = 0) -> bytes:
    body = bytes([magic, attributes]) + (b"\0" * 7 + b"\5" if magic else b"")
    body += (1).to_bytes(4, "big") + b"k" + len(value).to_bytes(4, "big") + value
    return _correct(offset.to_bytes(8, "big") + bytes(8) + body)


def _seeds() -> Iterator[bytes]:
    for magic in (0, 1):
        plain = _message(magic, b"v")
        inner = plain + _message(magic, b"w", offset=1)
        yield b"\1" + plain
        yield b"\0" + plain
        for codec in (Compression.GZIP, Compression.SNAPPY, Compression.LZ4):
            yield b"\1" + _message(magic, compress(codec, inner), codec, offset=1)


TARGET = Target(name="legacy", fuzz=fuzz, seeds=_seeds, memory=(300, 8 * _MAX_BYTES))
