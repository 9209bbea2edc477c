"""Writes the message sets of this folder: ``python -m tests.corpus.legacy.make``.

kafka-python 3.0.12 builds them as its producer would send them; xxhash has to be installed, for
LZ4 of magic 0 with the header checksum that old producers got wrong. What a broker did at its
append is done here: it gave a wrapper the offset of its last message, and in magic 0, which has
absolute offsets in wrappers, wrote those.
"""

from __future__ import annotations

from pathlib import Path
from struct import pack_into

from kafka.record.legacy_records import (  # type: ignore[import-untyped]
    LegacyRecordBatchBuilder,
)

from tests.corpus.legacy import BASE_OFFSET
from tests.corpus.records import RECORDS

_CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3}
_HEX_LINE = 96


def build(magic: int, codec: int) -> bytes:
    """The corpus' records without their headers, as they lie on a broker's disk."""
    builder = LegacyRecordBatchBuilder(magic, codec, 1 << 20)
    is_relative = magic == 1 and codec
    for number, record in enumerate(RECORDS):
        offset = number if is_relative else BASE_OFFSET + number
        builder.append(offset, record.timestamp, record.key, record.value)
    data = builder.build()
    if codec:
        pack_into(">q", data, 0, BASE_OFFSET + len(RECORDS) - 1)
    return bytes(data)


if __name__ == "__main__":
    for magic in (0, 1):
        for name, codec in _CODECS.items():
            text = build(magic, codec).hex()
            lines = (text[start : start + _HEX_LINE] for start in range(0, len(text), _HEX_LINE))
            path = Path(__file__).with_name(f"magic-{magic}-{name}.hex")
            path.write_text("".join(f"{line}\n" for line in lines))
