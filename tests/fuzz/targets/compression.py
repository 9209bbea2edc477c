"""Each codec on any input: it returns the contents, within the bound, or raises CorruptRecords.

The first byte chooses the codec.
"""

from __future__ import annotations

from collections.abc import Iterator

from plog.records.batch import Compression, CorruptRecords
from plog.records.compression import compress, decompress
from plog.records.legacy import correct_lz4_header
from tests.fuzz.target import Target

_MAX_BYTES = 100_000
_CODECS = tuple(Compression)


def fuzz(data: bytes) -> None:
    """Decompress the input; compress and decompress the result."""
    if not data:
        return
    codec = _CODECS[data[0] % len(_CODECS)]
    if codec is Compression.LZ4:
        _check_lz4_header(data[1:])
    try:
        content = decompress(codec, data[1:], _MAX_BYTES)
    except CorruptRecords:
        return
    assert len(content) <= _MAX_BYTES
    assert decompress(codec, compress(codec, content), _MAX_BYTES) == content


def _check_lz4_header(data: bytes) -> None:
    try:
        corrected = correct_lz4_header(data)
    except CorruptRecords:
        return
    assert len(corrected) == len(data)


def _seeds() -> Iterator[bytes]:
    for index, codec in enumerate(_CODECS):
        for content in (b"", b"a", bytes(1_000), bytes(range(256)) * 3, bytes(2 * _MAX_BYTES)):
            if codec is not Compression.NONE or len(content) <= 1_000:
                yield bytes([index]) + compress(codec, content)
    yield b"\1" + compress(Compression.GZIP, b"a") * 3
    yield b"\4" + compress(Compression.ZSTD, b"a") * 3


# Only the bytes that the libraries return are traced, not their own memory.
TARGET = Target(name="compression", fuzz=fuzz, seeds=_seeds, memory=(20, 8 * _MAX_BYTES))
