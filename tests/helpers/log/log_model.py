"""A simple model of a log with transactions: a list with one entry for each offset.

It contains all records that were ever appended and not truncated. Whether compaction or retention
may have removed them is up to the tests (log_history.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Entry:
    """The record at one offset. A marker and a gap in the offsets have no key."""

    base_offset: int
    """The base offset of its batch."""
    epoch: int
    key: bytes | None = None
    value: bytes | None = None
    producer_id: int = -1
    sequence: int = -1
    is_transactional: bool = False
    is_commit: bool = False
    timestamp: int = -1
    appended_ms: int = 0
    is_gone: bool = False
    """Whether it was compacted away, and the record that replaced it may have been truncated."""


@dataclass(slots=True)
class Model:
    """The entries of a log by offset; every question is answered by reading all of them."""

    entries: list[Entry] = field(default_factory=list)
    generation: int = 0
    """Each truncation begins with new producers, because the state of others may be lost."""

    def sequences(self) -> dict[int, int]:
        """Return the last sequence number of each producer of this generation."""
        return {
            entry.producer_id: entry.sequence
            for entry in self.entries
            if entry.producer_id // 10 == self.generation and entry.key is not None
        }

    def ongoing(self, end_offset: int | None = None) -> dict[int, int]:
        """Return the first offset of each open transaction by producer id."""
        found: dict[int, int] = {}
        for offset, entry in enumerate(self.entries[:end_offset]):
            if entry.is_transactional:
                if entry.key is None:
                    found.pop(entry.producer_id, None)
                else:
                    found.setdefault(entry.producer_id, offset)
        return found

    def stable_offset(self, high_watermark: int) -> int:
        """Return the last stable offset: a marker counts as soon as it is readable."""
        return min([*self.ongoing(high_watermark).values(), high_watermark])

    def aborted(self) -> set[int]:
        """Return the offsets of the records in aborted transactions."""
        found: set[int] = set()
        begun: dict[int, list[int]] = {}
        for offset, entry in enumerate(self.entries):
            if not entry.is_transactional:
                continue
            if entry.key is not None:
                begun.setdefault(entry.producer_id, []).append(offset)
            else:
                offsets = begun.pop(entry.producer_id, [])
                if not entry.is_commit:
                    found.update(offsets)
        return found

    def batch_offset(self, offset: int) -> int:
        """Return the base offset of the batch that contains `offset`; `offset` at the end."""
        return self.entries[offset].base_offset if offset < len(self.entries) else offset

    def cut(self, end_offset: int, present: Iterable[int]) -> None:
        """Note a truncation after which only the records at `present` exist."""
        del self.entries[end_offset:]
        there = set(present)
        for offset, entry in enumerate(self.entries):
            entry.is_gone = entry.is_gone or (entry.key is not None and offset not in there)
        self.generation += 1
