"""The ``.txnindex`` file of a segment: the aborted transactions whose markers are in the segment.

A broker sends these transactions with the records of a read_committed fetch, and the consumer skips
their records. An entry has 34 bytes, big-endian, and is added with the marker:

    version              int16   0
    producer id          int64
    first offset         int64   of the transaction's first record
    last offset          int64   of its marker
    last stable offset   int64   once this transaction has ended, the others may be open

The file is created with the first entry; a segment without aborted transactions has none. Unlike
the other indexes, it is not a hint: without an entry, consumers would get aborted records. It is
therefore checked as a whole at startup, and rebuilt from the ``.log`` if it is damaged.

Source: Kafka 3.9 TransactionIndex, AbortedTxn; KIP-98. Invariant: last offsets ascend strictly, and
last stable offsets never decrease, so that a lookup knows where it can stop.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from plogd.log.io_errors import is_refusal
from plogd.log.segment.index_file import CorruptIndex, IndexFile
from plogd.ports import Files

_VERSION = 0
_LAST_OFFSET_FIELD = 3
_BLOCK_ENTRIES = 512
"""Number of entries that a lookup reads, or skips, together."""
_FLUSH_BYTES = 4096
"""New entries are written once they have this size, and when the segment is rolled or closed.
Recovery finds the others in the batches."""


class AbortedTransaction(NamedTuple):
    """An aborted transaction in one partition; `last_offset` is the offset of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def encode_entries(aborted: Iterable[AbortedTransaction]) -> bytes:
    """Return the content of a file with these entries."""
    return b"".join(TransactionIndex.LAYOUT.pack(_VERSION, *one) for one in aborted)


class _Block(NamedTuple):
    """Facts about consecutive entries, which let a lookup skip them."""

    min_first_offset: int
    max_stable_offset: int


class TransactionIndex(IndexFile[AbortedTransaction]):
    """The transaction index of one segment. Opening it reads the whole file."""

    __slots__ = ("_blocks",)  # Replaced as a whole, because other threads read it.

    LAYOUT = struct.Struct(">hqqqq")
    OFFSET_FIELD = _LAST_OFFSET_FIELD

    def __init__(self, files: Files, path: str, segment_base_offset: int) -> None:
        """Open the index, or create it. Raises OSError, or CorruptIndex if it is damaged."""
        # Offsets on disk are absolute, and the file may have any size.
        super().__init__(files, path, 0, sys.maxsize)
        self._blocks: list[_Block] = []
        try:
            self._check_size()
            self._check_entries(segment_base_offset)
        except Exception:
            self.close()
            raise

    @property
    def empty_entry(self) -> AbortedTransaction:
        """A transaction before all others."""
        return AbortedTransaction(-1, -1, -1, -1)

    def entry(self, slot: int, *, nowait: bool = False) -> AbortedTransaction:
        """Return the entry with number `slot`, counted from 0.

        Raises CorruptIndex; with `nowait`, also UncachedLookup.
        """
        return AbortedTransaction(*self._fields(slot, nowait)[1:])

    def append(self, aborted: AbortedTransaction) -> None:
        """Add a transaction, in memory; from time to time, write the new entries.

        If this raises OSError, the entry has not been added.
        """
        last = self.last_entry
        assert last.last_offset < aborted.last_offset, (last, aborted)
        # A rebuilt index did not include an open transaction whose records had all been deleted. It
        # has no records below the last entry's stable offset, so later entries need not include it.
        stable_offset = max(last.last_stable_offset, aborted.last_stable_offset)
        aborted = aborted._replace(last_stable_offset=stable_offset)
        self._append(_VERSION, *aborted)
        self.last_entry = aborted
        self._note(aborted, self.count - 1)
        if len(self._tail[1]) < _FLUSH_BYTES:
            return
        try:
            self.flush()
        except OSError as error:
            # On a full disk, the entries stay in memory until there is room, or until the roll.
            if not is_refusal(error):
                self.truncate_to_count(self.count - 1)
                raise

    def truncate_to_count(self, count: int) -> None:
        """Keep the first `count` entries."""
        try:
            super().truncate_to_count(count)
        finally:  # Even if the file could not be truncated, the count has changed.
            whole, left = divmod(self.count, _BLOCK_ENTRIES)
            blocks = self._blocks[:whole]
            if left:
                entries = list(self._entries(self.count - left, self.count, nowait=False))
                first_offset = min(aborted.first_offset for aborted in entries)
                blocks.append(_Block(first_offset, entries[-1].last_stable_offset))
            self._blocks = blocks

    def collect(
        self, fetch_offset: int, end_offset: int, *, nowait: bool
    ) -> tuple[list[AbortedTransaction], bool]:
        """Return the transactions with records from `fetch_offset` up to `end_offset`.

        The second value is whether no later segment can have more of them. Reads only blocks of
        entries that may belong to the result. Raises CorruptIndex; with `nowait`, UncachedLookup.
        """
        found: list[AbortedTransaction] = []
        blocks = self._blocks
        slot = self._floor_slot(_LAST_OFFSET_FIELD, fetch_offset - 1, nowait=nowait) + 1
        for number in range(slot // _BLOCK_ENTRIES, len(blocks)):
            block = blocks[number]
            if block.min_first_offset < end_offset:
                start = number * _BLOCK_ENTRIES
                for aborted in self._entries(max(slot, start), start + _BLOCK_ENTRIES, nowait):
                    if aborted.first_offset < end_offset:
                        found.append(aborted)
                    if aborted.last_stable_offset >= end_offset:
                        return found, True
            elif block.max_stable_offset >= end_offset:
                return found, True
        return found, False

    def _entries(self, start: int, end: int, nowait: bool) -> Iterator[AbortedTransaction]:
        end = min(end, self.count)
        if start >= end:  # A truncation in another thread lowers the count before the blocks.
            return
        data = self._read(start, end, nowait)
        if len(data) != (end - start) * self.LAYOUT.size:
            raise CorruptIndex(f"{self.file.path} is too short for {end} entries")
        for _, *fields in self.LAYOUT.iter_unpack(data):
            yield AbortedTransaction(*fields)

    def _note(self, aborted: AbortedTransaction, slot: int) -> None:
        """Include a new entry in the facts about its block."""
        if slot % _BLOCK_ENTRIES:
            first_offset = min(self._blocks[-1].min_first_offset, aborted.first_offset)
            self._blocks[-1] = _Block(first_offset, aborted.last_stable_offset)
        else:
            self._blocks.append(_Block(aborted.first_offset, aborted.last_stable_offset))

    def _check_entries(self, segment_base_offset: int) -> None:
        """Note all entries. Raises CorruptIndex if one of them is impossible."""
        previous = self.empty_entry._replace(last_offset=segment_base_offset - 1)
        for start in range(0, self.count, _BLOCK_ENTRIES):
            data = self._read(start, min(start + _BLOCK_ENTRIES, self.count), False)
            for slot, (version, *fields) in enumerate(self.LAYOUT.iter_unpack(data), start):
                aborted = AbortedTransaction(*fields)
                if not (
                    version == _VERSION
                    and aborted.producer_id >= 0
                    and 0 <= aborted.first_offset < aborted.last_offset
                    and previous.last_offset < aborted.last_offset
                    and max(previous.last_stable_offset, 0) <= aborted.last_stable_offset
                    and aborted.last_stable_offset <= aborted.last_offset + 1
                ):
                    raise CorruptIndex(f"{self.file.path}: invalid entry {slot}: {aborted}")
                self._note(aborted, slot)
                previous = aborted
