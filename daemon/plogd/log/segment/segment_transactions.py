"""The transaction index of a segment, which most segments do not have.

The ``.txnindex`` file is created with the first aborted transaction. Source: Kafka 3.9 LogSegment.
"""

from __future__ import annotations

from plogd.log.segment.transaction_index import AbortedTransaction, TransactionIndex
from plogd.ports import File, Files


class SegmentTransactions:
    """The ``.txnindex`` file at `path`; `index` is None unless it exists and is open."""

    __slots__ = ("_base_offset", "_files", "_path", "index")

    def __init__(self, files: Files, path: str, base_offset: int) -> None:
        self._files = files
        self._path = path
        self._base_offset = base_offset
        self.index: TransactionIndex | None = None

    @property
    def open_files(self) -> list[File]:
        """The file, if it exists."""
        return [] if self.index is None else [self.index.file]

    def open(self) -> TransactionIndex:
        """Open the file, or create it. Raises OSError or CorruptIndex."""
        self.index = TransactionIndex(self._files, self._path, self._base_offset)
        return self.index

    def add(self, aborted: AbortedTransaction) -> None:
        """Add an aborted transaction, whose marker was appended last. Raises OSError."""
        (self.index or self.open()).append(aborted)

    def flush(self) -> None:
        """Write the transactions that are only in memory. Raises OSError."""
        if self.index is not None:
            self.index.flush()

    def truncate_to(self, offset: int) -> None:
        """Remove the transactions whose markers are at or above `offset`. Raises OSError."""
        if self.index is not None:
            self.index.truncate_to(offset)

    def move_to(self, path: str) -> None:
        """Set the path of the file, which has been renamed."""
        self._path = path
        if self.index is not None:
            self.index.file.path = path

    def close(self) -> None:
        """Close the file."""
        if self.index is not None:
            self.index.close()
            self.index = None
