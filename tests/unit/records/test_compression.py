"""plog/records/compression.py: round trips, forms of other clients, damage, and bombs."""

from __future__ import annotations

import gzip
import struct
import tracemalloc
import zlib
from collections.abc import Callable

import lz4.frame
import pytest
import snappy
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from plog.records.batch import Compression, CorruptRecords, parse_header
from plog.records.compression import DecompressionTooLarge, compress, decompress
from tests.corpus.records import load, names

CODECS = [codec for codec in Compression if codec is not Compression.NONE]
TEXT = b"127.0.0.1 - - GET /index.html 200\n" * 6000  # More than one block of any codec.
LIMIT = 1 << 20

every_codec = pytest.mark.parametrize("codec", CODECS)


def _payloads(codec: Compression) -> list[bytes]:
    return [load(name)[61:] for name in names(codec.name.lower())]


@given(st.sampled_from(Compression), st.binary(max_size=1000), st.integers(0, 100))
def test_data_survives_round_trip(codec: Compression, data: bytes, repeat: int) -> None:
    compressed = compress(codec, data * repeat)
    assert decompress(codec, compressed, len(data) * repeat) == data * repeat


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.ZSTD])
def test_too_many_frames_are_rejected(codec: Compression) -> None:
    # Each frame is copied with all bytes after it: a megabyte of empty frames took a minute.
    frame = compress(codec, b"")
    assert decompress(codec, frame * 100, LIMIT) == b""
    with pytest.raises(CorruptRecords, match="more than 100 frames"):
        decompress(codec, frame * 101, LIMIT)


@every_codec
def test_codecs_accept_views(codec: Compression) -> None:
    compressed = bytearray(b"__" + compress(codec, memoryview(bytearray(TEXT))) + b"__")
    assert decompress(codec, memoryview(compressed)[2:-2], LIMIT) == TEXT
    assert len(compressed) < len(TEXT) / 5


@every_codec
def test_batches_of_all_clients_decompress_to_same_records(codec: Compression) -> None:
    uncompressed = load("java-4.3.1-none")[61:]
    assert len(_payloads(codec)) == 3
    assert {decompress(codec, payload, 2000) for payload in _payloads(codec)} == {uncompressed}


@pytest.mark.parametrize("codec", Compression)
def test_limit_is_exact(codec: Compression) -> None:
    compressed = compress(codec, TEXT)
    assert decompress(codec, compressed, len(TEXT)) == TEXT
    with pytest.raises(DecompressionTooLarge, match=str(len(TEXT) - 1)):
        decompress(codec, compressed, len(TEXT) - 1)


def _zstd_without_size(data: bytes) -> bytes:
    compressor = zstandard.ZstdCompressor().compressobj()
    return compressor.compress(data) + compressor.flush()


def _lz4_with_size(data: bytes) -> bytes:
    return bytes(lz4.frame.compress(data, store_size=True, content_checksum=True))


BOMBS: dict[str, tuple[Compression, Callable[[bytes], bytes]]] = {
    "gzip": (Compression.GZIP, lambda zeros: compress(Compression.GZIP, zeros)),
    "gzip in members": (
        Compression.GZIP,
        lambda zeros: compress(Compression.GZIP, zeros[: len(zeros) // 64]) * 64,
    ),
    "snappy raw": (Compression.SNAPPY, lambda zeros: bytes(snappy.compress(zeros))),
    "snappy framed": (Compression.SNAPPY, lambda zeros: compress(Compression.SNAPPY, zeros)),
    "snappy that only claims": (Compression.SNAPPY, lambda _: b"\xff\xff\xff\xff\x0f"),
    "lz4": (Compression.LZ4, lambda zeros: compress(Compression.LZ4, zeros)),
    "lz4 with size": (Compression.LZ4, _lz4_with_size),
    "zstd": (Compression.ZSTD, lambda zeros: compress(Compression.ZSTD, zeros)),
    "zstd without size": (Compression.ZSTD, _zstd_without_size),
    "zstd in frames": (
        Compression.ZSTD,
        lambda zeros: _zstd_without_size(zeros[: len(zeros) // 64]) * 64,
    ),
}


@pytest.mark.parametrize("what", BOMBS)
def test_decompression_bomb_is_rejected(what: str) -> None:
    codec, make = BOMBS[what]
    bomb = make(bytes(64 * LIMIT))
    tracemalloc.start()
    try:
        with pytest.raises(DecompressionTooLarge):
            decompress(codec, bomb, LIMIT)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * LIMIT + 2 * len(bomb)


@every_codec
def test_truncated_data_is_rejected(codec: Compression) -> None:
    for payload in [*_payloads(codec), compress(codec, TEXT)]:
        for end in range(0, len(payload), max(1, len(payload) // 150)):
            try:
                found = decompress(codec, payload[:end], LIMIT)
            except CorruptRecords:
                continue
            # Framed snappy may end after any block; decode_records then finds records missing.
            assert codec is Compression.SNAPPY
            assert len(found) % (32 * 1024) == 0


@given(st.sampled_from(CODECS), st.data())
def test_changed_bytes_raise_only_corrupt_records(codec: Compression, data: st.DataObject) -> None:
    payload = bytearray(data.draw(st.sampled_from(_payloads(codec))))
    position = data.draw(st.integers(0, len(payload) - 1))
    payload[position] ^= data.draw(st.integers(1, 255))
    try:
        assert len(decompress(codec, payload, 4000)) <= 4000
    except CorruptRecords:
        pass


@given(st.sampled_from(CODECS), st.binary(max_size=60))
def test_random_bytes_raise_only_corrupt_records(codec: Compression, noise: bytes) -> None:
    starts = {
        Compression.GZIP: b"\x1f\x8b\x08",
        Compression.SNAPPY: b"\x82SNAPPY\0",
        Compression.LZ4: b"\x04\x22\x4d\x18",
        Compression.ZSTD: b"\x28\xb5\x2f\xfd",
    }
    for data in (noise, starts[codec] + noise):
        try:
            decompress(codec, data, 4000)
        except CorruptRecords:
            pass


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.ZSTD])
def test_consecutive_members_and_frames_are_read(codec: Compression) -> None:
    assert decompress(codec, compress(codec, b"one ") + compress(codec, b"two"), 7) == b"one two"


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_bytes_after_end_are_rejected(codec: Compression) -> None:
    with pytest.raises(CorruptRecords):
        decompress(codec, compress(codec, b"data") + b"more", 100)


def test_snappy_is_written_in_javas_framing() -> None:
    # A header of 16 bytes, then blocks of 32 KiB, each after its length.
    framed = compress(Compression.SNAPPY, bytes(100_000))
    assert framed.startswith(b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01")
    sizes, position = [], 16
    while position < len(framed):
        (length,) = struct.unpack_from(">i", framed, position)
        sizes.append(len(snappy.uncompress(framed[position + 4 : position + 4 + length])))
        position += 4 + length
    assert sizes == [32768, 32768, 32768, 1696]


@pytest.mark.parametrize("length", [-1, -(1 << 31), 0, 1 << 30])
def test_snappy_block_of_impossible_length_is_rejected(length: int) -> None:
    framed = compress(Compression.SNAPPY, b"data")
    with pytest.raises(CorruptRecords):
        decompress(Compression.SNAPPY, framed[:16] + struct.pack(">i", length) + framed[20:], 99)


def test_lz4_is_written_in_javas_form() -> None:
    info = lz4.frame.get_frame_info(compress(Compression.LZ4, TEXT))
    assert not info["block_linked"]
    assert info["content_size"] == 0
    assert info["block_size"] == 1 << 16


@pytest.mark.parametrize("linked", [True, False])
@pytest.mark.parametrize("block", [lz4.frame.BLOCKSIZE_MAX64KB, lz4.frame.BLOCKSIZE_MAX4MB])
@pytest.mark.parametrize("checksums", [True, False])
@pytest.mark.parametrize("size", [True, False])
def test_lz4_frames_of_all_forms_are_read(
    linked: bool, block: int, checksums: bool, size: bool
) -> None:
    frame = lz4.frame.compress(
        TEXT,
        block_linked=linked,
        block_size=block,
        content_checksum=checksums,
        block_checksum=checksums,
        store_size=size,
    )
    assert decompress(Compression.LZ4, frame, len(TEXT)) == TEXT


def test_zstd_checksum_is_verified() -> None:
    frame = bytearray(zstandard.ZstdCompressor(write_checksum=True).compress(TEXT))
    assert decompress(Compression.ZSTD, frame, LIMIT) == TEXT
    frame[-1] ^= 1
    with pytest.raises(CorruptRecords):
        decompress(Compression.ZSTD, frame, LIMIT)


def test_wrong_content_size_is_rejected_without_allocating() -> None:
    frame = bytearray(zstandard.ZstdCompressor().compress(bytes(1 << 17)))
    size = zstandard.frame_header_size(frame)
    assert struct.unpack_from("<I", frame, size - 4) == (1 << 17,)
    struct.pack_into("<I", frame, size - 4, 0xFFFFFFFF)
    with pytest.raises(DecompressionTooLarge):
        decompress(Compression.ZSTD, frame, LIMIT)
    struct.pack_into("<I", frame, size - 4, (1 << 17) + 1)
    with pytest.raises(CorruptRecords):
        decompress(Compression.ZSTD, frame, LIMIT)


@pytest.mark.parametrize(
    ("codec", "levels"),
    [
        (Compression.GZIP, (-1, 1, 9)),
        (Compression.LZ4, (1, 9, 12, 17)),
        (Compression.ZSTD, (-7, 1, 3, 19)),
    ],
)
def test_kafkas_levels_are_accepted(codec: Compression, levels: tuple[int, ...]) -> None:
    for level in levels:
        assert decompress(codec, compress(codec, TEXT[:20_000], level), LIMIT) == TEXT[:20_000]


@pytest.mark.parametrize(
    ("codec", "level"),
    [
        (Compression.GZIP, 10),
        (Compression.GZIP, -2),
        (Compression.SNAPPY, 1),
        (Compression.LZ4, 0),
        (Compression.ZSTD, 23),
    ],
)
def test_unknown_level_is_rejected(codec: Compression, level: int) -> None:
    with pytest.raises(ValueError, match="level"):
        compress(codec, b"data", level)


def test_gzip_is_compatible_with_standard_library() -> None:
    assert decompress(Compression.GZIP, gzip.compress(TEXT), LIMIT) == TEXT
    assert gzip.decompress(compress(Compression.GZIP, TEXT)) == TEXT
    with pytest.raises(CorruptRecords):
        decompress(Compression.GZIP, zlib.compress(TEXT), LIMIT)


def test_uncompressed_records_are_only_checked_for_size() -> None:
    header = parse_header(load("java-4.3.1-none"))
    assert header.compression is Compression.NONE
    assert decompress(Compression.NONE, memoryview(b"data"), 4) == b"data"


@every_codec
def test_compression_in_steps_has_same_result_and_can_be_cancelled(codec: Compression) -> None:
    sizes: list[int] = []
    compressed = compress(codec, TEXT, on_step=sizes.append)
    assert compressed == compress(codec, TEXT)
    assert sizes == sorted(sizes)
    assert sizes[-1] == len(compressed)
    assert len(sizes) > len(TEXT) / (64 << 10)

    def stop(nbytes: int) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        compress(codec, TEXT, on_step=stop)


@pytest.mark.parametrize("level", [1, 3, 19, 22])
def test_zstd_of_large_inputs_uses_a_window_of_two_mebibytes(level: int) -> None:
    # Level 22 would need tables of 500 MB for 64 MiB, whatever the records are.
    data = bytes(5 << 20)
    frame = compress(Compression.ZSTD, data, level)
    assert zstandard.get_frame_parameters(frame).window_size <= 2 << 20
    assert decompress(Compression.ZSTD, frame, len(data)) == data
    with pytest.raises(ValueError, match="level"):
        compress(Compression.ZSTD, data, 23)


@every_codec
def test_decompression_uses_little_more_memory_than_its_result(codec: Compression) -> None:
    compressed = compress(codec, bytes(16 << 20))
    tracemalloc.start()
    try:
        size = len(decompress(codec, compressed, 16 << 20))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1.3 * size + 3 * (1 << 20)
