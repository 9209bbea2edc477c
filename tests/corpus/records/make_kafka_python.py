"""Writes the batches of this folder that kafka-python builds: ``python -m <this module>``.

The other batches were captured (README.md) and cannot be made again byte for byte.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from kafka.record.memory_records import MemoryRecordsBuilder  # type: ignore[import-untyped]

from plog.records.batch import Compression
from tests.corpus.records import RECORDS

_BATCH_BYTES = 1 << 20
_HEX_LINE = 96


def build(compression: Compression, **producer: int) -> bytes:
    """The corpus' records in one batch, by kafka-python."""
    builder = MemoryRecordsBuilder(2, int(compression), _BATCH_BYTES, **producer)
    for record in RECORDS:
        builder.append(
            timestamp=record.timestamp,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
        )
    builder.close()
    return bytes(builder.buffer())


def write(name: str, batch: bytes) -> None:
    """Keep `batch` in this folder, as text that a diff can show."""
    text = batch.hex()
    lines = (text[start : start + _HEX_LINE] for start in range(0, len(text), _HEX_LINE))
    path = Path(__file__).with_name(f"{name}.hex")
    path.write_text("".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    prefix = f"kafka-python-{version('kafka-python')}"
    for codec in Compression:
        write(f"{prefix}-{codec.name.lower()}", build(codec))
    idempotent = build(
        Compression.NONE, producer_id=4711, producer_epoch=3, base_sequence=2**31 - 3
    )
    write(f"{prefix}-idempotent", idempotent)
