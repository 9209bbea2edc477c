"""Message sets of magic 0 and 1 as old brokers kept them, built by kafka-python: see make.py.

`load` gives the bytes, `records` what is in them.
"""

from __future__ import annotations

from pathlib import Path

from plog.records.codec import Record
from tests.corpus.records import RECORDS

BASE_OFFSET = 1000


def names() -> list[str]:
    """Every message set, like ``magic-1-gzip``."""
    return sorted(path.stem for path in Path(__file__).parent.glob("*.hex"))


def load(name: str) -> bytes:
    """One message set: single messages, or one wrapper."""
    return bytes.fromhex((Path(__file__).parent / f"{name}.hex").read_text())


def records(magic: int) -> list[Record]:
    """The records of a message set; magic 0 knows no timestamps, neither knows headers."""
    return [
        Record(
            BASE_OFFSET + number,
            record.timestamp if magic else -1,
            record.key,
            record.value,
        )
        for number, record in enumerate(RECORDS)
    ]
