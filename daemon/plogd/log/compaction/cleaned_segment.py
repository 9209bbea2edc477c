"""The files of a segment that compaction writes, beside those of the segments that it replaces.

The records and the transaction index have the second suffix ``.cleaned``. The indexes are written
with ``.swap`` immediately, because an index rebuild uses ``.cleaned`` for its files. Startup
removes all of these files unless the records have the suffix ``.swap``, which the broker gives them
last (segment_swap.py).

Called in the process that compacts. Source: Kafka 3.9 Cleaner.cleanSegments.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from plog.records.batch import parse_header
from plogd.log.file_names import (
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    segment_path,
)
from plogd.log.segment.segment_indexes import SegmentIndexes
from plogd.log.segment.transaction_index import AbortedTransaction, encode_entries
from plogd.ports import Buffer, Files
from plogd.topic_config import TopicConfig

_BUFFER_BYTES = 1 << 20


def unfinished_paths(directory: str, base_offset: int) -> list[str]:
    """Return the paths of the files that an unfinished segment may have."""
    return [
        segment_path(directory, base_offset, LOG_SUFFIX, CLEANED_SUFFIX),
        segment_path(directory, base_offset, TXN_INDEX_SUFFIX, CLEANED_SUFFIX),
        segment_path(directory, base_offset, INDEX_SUFFIX, SWAP_SUFFIX),
        segment_path(directory, base_offset, TIME_INDEX_SUFFIX, SWAP_SUFFIX),
    ]


class CleanedSegment:
    """A new segment, which is written from its beginning. All methods raise OSError."""

    def __init__(self, files: Files, directory: str, base_offset: int, config: TopicConfig) -> None:
        self._files = files
        self._directory = directory
        self._base_offset = base_offset
        self.discard_files()
        self._records = files.open_append(
            segment_path(directory, base_offset, LOG_SUFFIX, CLEANED_SUFFIX)
        )
        self._indexes = SegmentIndexes(files, directory, base_offset, config, SWAP_SUFFIX)
        self._indexes.begin_new()
        self._buffer = bytearray()
        self._is_open = True
        self.size_bytes = 0

    def append(self, batch: Buffer) -> None:
        """Add a batch at the end."""
        header = parse_header(batch)
        # The last offset stands for the batch, as in appends by a follower.
        self._indexes.add(
            self.size_bytes, header.last_offset, header.max_timestamp, header.last_offset
        )
        self._buffer += batch
        self.size_bytes += len(batch)
        if len(self._buffer) >= _BUFFER_BYTES:
            self._flush()

    def finish(self, aborted: Sequence[AbortedTransaction]) -> None:
        """Make the files durable; `aborted` are the transactions with markers in the segment."""
        self._flush()
        self._indexes.add_last_entry()
        for file in (self._records, *self._indexes.open_files):
            file.sync()
        self._close()
        if aborted:
            path = segment_path(
                self._directory, self._base_offset, TXN_INDEX_SUFFIX, CLEANED_SUFFIX
            )
            file = self._files.open_append(path)
            try:
                file.append(encode_entries(aborted))
                file.sync()
            finally:
                file.close()
        self._files.sync_dir(self._directory)

    def discard(self) -> None:
        """Close and unlink the files, if possible."""
        with contextlib.suppress(OSError):
            self._close()
            self.discard_files()

    def discard_files(self) -> None:
        """Unlink the files that an earlier run has left."""
        for path in unfinished_paths(self._directory, self._base_offset):
            if self._files.exists(path):
                self._files.unlink(path)

    def _flush(self) -> None:
        if self._buffer:
            self._records.append(self._buffer)
            self._buffer = bytearray()

    def _close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._records.close()
            self._indexes.close()
