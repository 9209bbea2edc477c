"""Record batches written by Kafka's own clients and brokers, described in README.md.

A test that needs real batches takes them from here: `load` returns the bytes, `RECORDS` the
records that the producers sent.
"""

from __future__ import annotations

from pathlib import Path

from plog.records.codec import Record

FIRST_TIMESTAMP = 1_700_000_000_000

RECORDS = (
    Record(0, FIRST_TIMESTAMP, None, b"first"),
    Record(1, FIRST_TIMESTAMP + 1, b"key", b""),
    Record(2, FIRST_TIMESTAMP + 2, b"", None),
    Record(
        3,
        FIRST_TIMESTAMP - 5,
        "kü".encode(),
        b"with headers",
        (("trace", b"\x00\xff"), ("empty", b""), ("null", None), ("trace", b"again")),
    ),
    Record(4, FIRST_TIMESTAMP + 70_000, b"large", b"plog " * 200),
)
"""What is in every batch of the corpus but the control batches."""


def names(part: str = "") -> list[str]:
    """The batches whose names contain `part`, sorted."""
    stems = (path.stem for path in Path(__file__).parent.glob("*.hex"))
    return sorted(stem for stem in stems if part in stem)


def load(name: str) -> bytes:
    """One record batch, header and all."""
    return bytes.fromhex((Path(__file__).parent / f"{name}.hex").read_text())
