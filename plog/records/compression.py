"""Compression codecs for the records of a batch.

Every client can read the output of `compress`, and `decompress` accepts data from every client:
snappy with or without the framing of snappy-java, LZ4 and zstd frames with or without their content
size. The decompressed size is limited before memory is allocated, because a producer could send 1
MB that decompresses to a terabyte. The output is assembled without a second copy, so a call uses
little more memory than the limit. The code supports the library versions in Debian 12 and newer
versions. Each call creates its own context, so all functions can be called from any thread.

Source: KIP-390 (levels); RFC 1952, RFC 8878, LZ4 frame format 1.6, snappy-java (formats).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from io import BytesIO
from struct import Struct

import lz4.frame
import snappy
import zstandard

from plog.records.batch import Buffer, Compression, CorruptRecords

_MAX_FRAMES = 100
"""Maximum number of members in a gzip stream or frames in a zstd stream; producers write one.

An empty member or frame takes only a few bytes, but each needs a new decompressor.
"""
_GZIP_WINDOW = 16 + zlib.MAX_WBITS  # 16 adds gzip's header and trailer.

_XERIAL_MAGIC = b"\x82SNAPPY\0"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\0\0\0\1\0\0\0\1"  # Version and lowest compatible version.
_XERIAL_BLOCK_BYTES = 32 * 1024  # snappy-java's default.
_INT32 = Struct(">i")

_LZ4_FAST_LEVEL = 9
"""Kafka's default level, which selects the fast algorithm; all other levels compress more."""
_LZ4_LOWEST_HIGH_LEVEL, _LZ4_HIGHEST_LEVEL = 3, 12

_ZSTD_DEFAULT_LEVEL = 3
_ZSTD_RLE, _ZSTD_COMPRESSED = 1, 2
_ZSTD_MAX_BLOCK_BYTES = 128 * 1024
_ZSTD_MAX_WINDOW_LOG = 21
"""Maximum window. Without it, level 22 would allocate tables of 500 MB for an input of 64 MiB."""

_STEP_BYTES = 64 * 1024
"""Input between two calls to `on_step`: less than half a second at the slowest level."""
_PIECE_BYTES = 1 << 20
"""Maximum output per call to a library, because the libraries allocate the maximum in advance."""

OnStep = Callable[[int], None]
"""A function that receives the number of bytes written so far; it can raise to cancel."""


class DecompressionTooLarge(CorruptRecords):
    """The records are larger than the limit after decompression."""


def compress(
    codec: Compression, data: Buffer, level: int | None = None, *, on_step: OnStep | None = None
) -> bytes:
    """Compress `data`; `level` is Kafka's compression.*.level, or None for the default.

    Large data is compressed in steps, and `on_step` is called after each step. Raises ValueError
    for a level that the codec does not support.
    """
    if codec is Compression.NONE:
        return bytes(data)
    parts = _CODECS[codec][0](bytes(data), level)
    if on_step is None:
        return b"".join(parts)
    buffer = BytesIO()
    for part in parts:
        buffer.write(part)
        on_step(buffer.tell())
    return buffer.getvalue()


def decompress(codec: Compression, data: Buffer, max_bytes: int) -> bytes:
    """Return the decompressed data, which can be at most `max_bytes` long.

    Raises CorruptRecords if `data` is invalid for `codec` or incomplete, and its subclass
    DecompressionTooLarge if the result would exceed the limit.
    """
    if codec is not Compression.NONE:
        return _CODECS[codec][1](bytes(data), max_bytes)
    if len(data) > max_bytes:
        raise _too_large(max_bytes)
    return bytes(data)


def _too_large(max_bytes: int) -> DecompressionTooLarge:
    return DecompressionTooLarge(f"the records exceed {max_bytes} bytes when decompressed")


def _too_many_frames(codec: str) -> CorruptRecords:
    return CorruptRecords(f"{codec}: the batch has more than {_MAX_FRAMES} frames")


def _steps(data: bytes) -> Iterator[memoryview]:
    """Yield the data in steps of `_STEP_BYTES`."""
    view = memoryview(data)
    for start in range(0, len(data), _STEP_BYTES):
        yield view[start : start + _STEP_BYTES]


def _joined(pieces: Iterable[bytes]) -> bytes:
    """Join generated pieces, without keeping all pieces and the result in memory."""
    iterator = iter(pieces)
    first = next(iterator, b"")
    second = next(iterator, None)
    # Most batches are small and decompress to a single piece, which need not be copied.
    if second is None:
        return first
    buffer = BytesIO()
    buffer.write(first)
    del first  # The buffer has a copy.
    while second is not None:
        buffer.write(second)
        second = next(iterator, None)
    return buffer.getvalue()


def _compress_gzip(data: bytes, level: int | None) -> Iterator[bytes]:
    level = zlib.Z_DEFAULT_COMPRESSION if level is None else level
    if level != zlib.Z_DEFAULT_COMPRESSION and not 1 <= level <= zlib.Z_BEST_COMPRESSION:
        raise ValueError(f"gzip does not support level {level}")
    compressor = zlib.compressobj(level, zlib.DEFLATED, _GZIP_WINDOW)
    for step in _steps(data):
        yield compressor.compress(step)
    yield compressor.flush()


def _decompress_gzip(data: bytes, max_bytes: int) -> bytes:
    return _joined(_gzip_pieces(data, max_bytes))


def _gzip_pieces(data: bytes, max_bytes: int) -> Iterator[bytes]:
    members, position, allowed = 0, 0, max_bytes
    view = memoryview(data)
    while position < len(data) or not members:  # Empty data is also an error.
        if members >= _MAX_FRAMES:
            raise _too_many_frames("gzip")
        decompressor = zlib.decompressobj(_GZIP_WINDOW)
        while not decompressor.eof:
            # In steps, because each call copies the input that it does not consume.
            step = view[position : position + _STEP_BYTES]
            try:
                # The limit is one byte above the maximum, to detect output that exceeds the
                # maximum, and because a limit of 0 would mean no limit.
                piece = decompressor.decompress(step, min(allowed + 1, _PIECE_BYTES))
            except zlib.error as error:
                raise CorruptRecords(f"gzip: {error}") from None
            rest = decompressor.unused_data if decompressor.eof else decompressor.unconsumed_tail
            position += len(step) - len(rest)
            if not (piece or step or decompressor.eof):
                raise CorruptRecords("gzip: the data is truncated")
            allowed -= len(piece)
            if allowed < 0:
                raise _too_large(max_bytes)
            yield piece
        members += 1


def _compress_snappy(data: bytes, level: int | None) -> Iterator[bytes]:
    if level is not None:
        raise ValueError("snappy does not support compression levels")
    # Java's reader requires the framing of snappy-java.
    yield _XERIAL_HEADER
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = snappy.compress(data[start : start + _XERIAL_BLOCK_BYTES])
        yield _INT32.pack(len(block)) + block


def _decompress_snappy(data: bytes, max_bytes: int) -> bytes:
    # Clients based on libsnappy send a raw block, without framing.
    if not data.startswith(_XERIAL_MAGIC):
        return _uncompress_snappy_block(data, max_bytes, max_bytes)
    if len(data) < len(_XERIAL_HEADER):
        raise CorruptRecords("snappy: the header is truncated")
    return _joined(_snappy_blocks(data, max_bytes))


def _snappy_blocks(data: bytes, max_bytes: int) -> Iterator[bytes]:
    allowed, position = max_bytes, len(_XERIAL_HEADER)
    while position < len(data):
        if position + _INT32.size > len(data):
            raise CorruptRecords("snappy: the length of a block is truncated")
        (size,) = _INT32.unpack_from(data, position)
        position += _INT32.size
        if not 0 < size <= len(data) - position:
            left = len(data) - position
            raise CorruptRecords(f"snappy: a block has {size} bytes, but only {left} are left")
        block = _uncompress_snappy_block(data[position : position + size], allowed, max_bytes)
        allowed -= len(block)
        position += size
        yield block


def _uncompress_snappy_block(block: bytes, allowed: int, max_bytes: int) -> bytes:
    """Decompress a raw snappy block, which starts with its uncompressed size as a varint."""
    # The library, in all supported versions, allocates this size before it validates the block.
    size = 0
    for index, byte in enumerate(block[:5]):  # 32 bits, 7 in each byte.
        size |= (byte & 0x7F) << 7 * index
        if byte <= 0x7F:
            break
    else:
        raise CorruptRecords("snappy: a block does not start with its size")
    if size > allowed:
        raise _too_large(max_bytes)
    try:
        return bytes(snappy.uncompress(block))
    except snappy.UncompressError:
        raise CorruptRecords("snappy: a block is corrupt") from None


def _compress_lz4(data: bytes, level: int | None) -> Iterator[bytes]:
    if level is None or level == _LZ4_FAST_LEVEL:
        level = 0
    elif level < 1:
        raise ValueError(f"lz4 does not support level {level}")
    else:
        # Kafka's levels are 1 to 17 (KIP-390). liblz4 supports at most 12, and would use the fast
        # algorithm for 1 and 2.
        level = min(max(level, _LZ4_LOWEST_HIGH_LEVEL), _LZ4_HIGHEST_LEVEL)
    compressor = lz4.frame.LZ4FrameCompressor(
        compression_level=level,
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,  # Java's reader does not accept linked blocks.
        auto_flush=True,
    )
    yield compressor.begin()
    for step in _steps(data):
        yield compressor.compress(step)
    yield compressor.flush()


def _decompress_lz4(data: bytes, max_bytes: int) -> bytes:
    return _joined(_lz4_pieces(data, max_bytes))


def _lz4_pieces(data: bytes, max_bytes: int) -> Iterator[bytes]:
    decompressor = lz4.frame.LZ4FrameDecompressor()
    allowed = max_bytes + 1
    # The library allocates the maximum output in advance, so the first maximum is small.
    piece_bytes = min(max(1 << 16, 4 * len(data)), _PIECE_BYTES)
    try:
        while not decompressor.eof and allowed > 0:
            piece = decompressor.decompress(data, max_length=min(piece_bytes, allowed))
            if not piece and not decompressor.eof:
                raise CorruptRecords("lz4: the data is truncated")
            yield piece
            allowed -= len(piece)
            data = b""  # The decompressor keeps the rest of the input.
            piece_bytes = min(2 * piece_bytes, _PIECE_BYTES)
    except RuntimeError as error:
        raise CorruptRecords(f"lz4: {error}") from None
    if allowed <= 0:
        raise _too_large(max_bytes)
    if decompressor.unused_data:
        raise CorruptRecords("lz4: extra bytes follow the frame")


def _compress_zstd(data: bytes, level: int | None) -> Iterator[bytes]:
    compressor = _zstd_compressor(_ZSTD_DEFAULT_LEVEL if level is None else level, len(data))
    if len(data) <= _STEP_BYTES:
        yield compressor.compress(data)
        return
    # The size is stored in the frame, so that readers know it, as after a single call.
    stream = compressor.compressobj(size=len(data))
    for step in _steps(data):
        yield stream.compress(step)
    yield stream.flush()


def _zstd_compressor(level: int, nbytes: int) -> zstandard.ZstdCompressor:
    if level > zstandard.MAX_COMPRESSION_LEVEL:
        raise ValueError(f"zstd does not support level {level}")
    # The window is never larger than the input, so a small input needs no limit.
    if nbytes <= 1 << _ZSTD_MAX_WINDOW_LOG:
        return zstandard.ZstdCompressor(level=level)
    chosen = zstandard.ZstdCompressionParameters.from_level(level, source_size=nbytes)
    return zstandard.ZstdCompressor(
        compression_params=zstandard.ZstdCompressionParameters.from_level(
            level,
            source_size=nbytes,
            window_log=min(chosen.window_log, _ZSTD_MAX_WINDOW_LOG),
            chain_log=min(chosen.chain_log, _ZSTD_MAX_WINDOW_LOG + 1),
            hash_log=min(chosen.hash_log, _ZSTD_MAX_WINDOW_LOG + 1),
        )
    )


def _decompress_zstd(data: bytes, max_bytes: int) -> bytes:
    return _joined(_zstd_frames(data, max_bytes))


def _zstd_frames(data: bytes, max_bytes: int) -> Iterator[bytes]:
    frames, allowed = 0, max_bytes
    while data or not frames:
        if frames >= _MAX_FRAMES:
            raise _too_many_frames("zstd")
        try:
            frame, end = _decompress_zstd_frame(data, allowed)
        except DecompressionTooLarge:
            raise _too_large(max_bytes) from None
        except zstandard.ZstdError as error:
            raise CorruptRecords(f"zstd: {error}") from None
        frames += 1
        allowed -= len(frame)
        data = data[end:]
        yield frame


def _decompress_zstd_frame(data: bytes, allowed: int) -> tuple[bytes, int]:
    """Return the contents of the first frame in `data`, and the position after the frame."""
    # The loop over the block headers has two purposes. It determines an upper bound of the content
    # size, which Java's producer omits: the library would then allocate the maximum output. The
    # loop also detects an incomplete frame, which the library does not.
    frame = zstandard.get_frame_parameters(data)
    position = zstandard.frame_header_size(data)
    bound, is_last = 0, False
    while not is_last:
        if position + 3 > len(data):
            raise CorruptRecords("zstd: the data is truncated")
        # A header has a bit that marks the last block, two bits for the type, and the size.
        block = int.from_bytes(data[position : position + 3], "little")
        is_last, kind, size = bool(block & 1), block >> 1 & 3, block >> 3
        # The header of a compressed block contains its compressed size. An RLE block consists of
        # one byte, and its header contains the number of repetitions.
        bound += _ZSTD_MAX_BLOCK_BYTES if kind == _ZSTD_COMPRESSED else size
        position += 3 + (1 if kind == _ZSTD_RLE else size)
    position += 4 if frame.has_checksum else 0
    if position > len(data):
        raise CorruptRecords("zstd: the data is truncated")
    if frame.content_size != zstandard.CONTENTSIZE_UNKNOWN:
        bound = frame.content_size
        if bound > allowed:
            raise _too_large(allowed)
    try:
        # A maximum of 0 would mean no maximum.
        content = zstandard.ZstdDecompressor().decompress(
            data[:position], max_output_size=max(1, min(bound, allowed))
        )
    except zstandard.ZstdError:
        if bound > allowed:  # The frame is complete, so its contents exceeded the output limit.
            raise _too_large(allowed) from None
        raise
    return content, position


_Compress = Callable[[bytes, int | None], Iterable[bytes]]
_Decompress = Callable[[bytes, int], bytes]

_CODECS: dict[Compression, tuple[_Compress, _Decompress]] = {
    Compression.GZIP: (_compress_gzip, _decompress_gzip),
    Compression.SNAPPY: (_compress_snappy, _decompress_snappy),
    Compression.LZ4: (_compress_lz4, _decompress_lz4),
    Compression.ZSTD: (_compress_zstd, _decompress_zstd),
}
