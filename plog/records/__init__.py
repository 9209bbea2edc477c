"""Record batches: the bytes Kafka keeps in its logs and sends unchanged to its clients.

`batch` reads and patches a batch's header without touching its records, `codec` turns the records
part to values and back, `compression` what may lie around it; `builder` and `reader` put the three
together for whole batches. `crc32c` is the checksum, `control` what brokers write among records.
Only format version 2 (magic 2) is known here. Nothing in this package does I/O.

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
