"""Record batches: the bytes that Kafka stores in its logs and sends unchanged to clients.

This package reads and patches batch headers, encodes, decodes and compresses records, and computes
checksums. It does not perform any I/O and is independent of logs and requests. Only legacy.py reads
formats older than magic 2. Start with batch.py for the header and codec.py for the records.

Source: KIP-98 (the batch format), KIP-32 (timestamps), KIP-110 (zstd), KIP-534 (delete horizon).
"""

from plog.compiled import compiled_folders, is_compiled

COMPILED = ("codec", "offset_map", "produced_batch", "record_encoder")
"""Modules that setup.py compiles if Cython and a compiler are available."""

# Inserted in front, so that Python finds a compiled module before its source (decision 0011).
__path__[:0] = compiled_folders(__path__[0], COMPILED)


def codec_is_compiled() -> bool:
    """Return whether the codec is compiled; compiled code is several times as fast."""
    from plog.records import codec

    return is_compiled(codec)
