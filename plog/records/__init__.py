"""Record batches: the bytes that Kafka keeps in its logs and sends unchanged to clients.

Reading and patching batch headers, encoding records, compression and checksums belong here. Logs
and requests do not, and nothing here does I/O; formats older than magic 2 are read in legacy.py
only. Start with batch.py for the header and codec.py for the records in it.

Source: KIP-98 (the batch format), KIP-32 (timestamps), KIP-110 (zstd), KIP-534 (delete horizon).
"""

from plog.compiled import compiled_folders, is_compiled

COMPILED = ("codec",)
"""The modules that setup.py compiles where it can."""

__path__[:0] = compiled_folders(__path__[0], COMPILED)


def codec_is_compiled() -> bool:
    """Whether records are read and written by compiled code; it is several times as fast."""
    from plog.records import codec

    return is_compiled(codec)
