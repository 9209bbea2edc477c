"""One segment of a log: a ``.log`` file of batches, its ``.index`` and its ``.timeindex``.

Only the last segment of a log, the active segment, receives appends; any segment can be read.
log.py finds the segment that contains an offset, limits how far readers can read, and syncs the
files. recovery/segment_recovery.py truncates a segment after a crash, and time_lookup.py looks up
timestamps.

Index entries are hints: a lookup checks the batch to which an entry leads. If the entry is wrong,
or the bytes are not a batch, the lookup sets `index_is_suspect`. Jobs then read the whole segment
once (index_rebuild.py), and a lookup on the reactor waits for these jobs. All files are opened on
demand (file_pool.py).

Source: Kafka 3.9 LogSegment. Invariant: an append that raises leaves the segment unchanged,
including its indexes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from plog.errors import CorruptMessage
from plog.records.batch import BatchHeader
from plogd.log.file_names import (
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    TXN_INDEX_SUFFIX,
    is_metadata_dir,
    segment_path,
)
from plogd.log.io_errors import HalfWritten
from plogd.log.segment.copied_records import COPIED_MAX_BYTES
from plogd.log.segment.file_records import BatchPlace, CorruptRange, FileRecords, FileRegion
from plogd.log.segment.index_file import MAX_RELATIVE_OFFSET, CorruptIndex
from plogd.log.segment.offset_index import OffsetIndex
from plogd.log.segment.recent_batches import RecentBatches
from plogd.log.segment.segment_age import SegmentAge
from plogd.log.segment.segment_indexes import SegmentIndexes
from plogd.log.segment.segment_transactions import SegmentTransactions
from plogd.log.segment.time_index import TimeIndex, TimestampOffset
from plogd.log.segment.uncached_lookup import UncachedLookup
from plogd.ports import Buffer, File, Files
from plogd.topic_config import TopicConfig


class UncheckedSegment(UncachedLookup):
    """A lookup has found damage or a wrong index entry, so jobs must read all of `segment`.

    index_rebuild.py submits these jobs; `warm` does nothing.
    """

    def __init__(self, segment: LogSegment) -> None:
        super().__init__(lambda: None)  # `warm` is a single job, and a rebuild takes several jobs.
        self.segment = segment


class LogSegment:
    """A segment and its files. Calls that truncate, rename or close it must not overlap."""

    __slots__ = (
        "_age",
        "_directory",
        "_files",
        "_is_closed",
        "_recent",
        "_state",
        "base_offset",
        "index_is_suspect",
        "indexes",
        "is_checked",
        "preallocate_at",
        "records",
        "transactions",
    )

    def __init__(
        self, files: Files, directory: str, base_offset: int, config: TopicConfig, state: str = ""
    ) -> None:
        self.base_offset = base_offset
        self.index_is_suspect = False
        """Whether a lookup has found a wrong index entry, or damage not in `corrupt_ranges`."""
        self.is_checked = False
        """Whether index_rebuild.py has recently read the whole segment, so that `corrupt_ranges` is
        complete."""
        self.preallocate_at: float = 0
        """The size from which the log allocates more space ahead of the appends."""
        self._is_closed = False
        self._files = files
        self._directory = directory
        self._state = state
        records_file = files.open_on_demand(self._path(LOG_SUFFIX))
        self.records = FileRecords(records_file, files.descriptors)
        """The batches."""
        self.indexes = SegmentIndexes(files, directory, base_offset, config, state)
        self.transactions = SegmentTransactions(files, self._path(TXN_INDEX_SUFFIX), base_offset)
        """The aborted transactions whose markers are in the segment."""
        self._recent = RecentBatches()
        self._age = SegmentAge(f"{directory}/{base_offset}")

    @classmethod
    def create(
        cls,
        files: Files,
        directory: str,
        base_offset: int,
        config: TopicConfig,
        *,
        in_new_directory: bool = False,
    ) -> LogSegment:
        """Create an empty segment, usually without its index files (`SegmentIndexes`).

        If this raises OSError, the new files are removed if possible.
        """
        # A failed roll can have left files with these names.
        for suffix in () if in_new_directory else SEGMENT_SUFFIXES:
            path = segment_path(directory, base_offset, suffix)
            if files.exists(path):
                files.unlink(path)
        segment = cls(files, directory, base_offset, config)
        segment.indexes.begin_new()
        # The metadata log reserves space for its indexes, which it needs on a full disk.
        if is_metadata_dir(directory):
            try:
                segment.indexes.make_files()
            except Exception:
                with contextlib.suppress(Exception):
                    segment.delete_files()
                raise
        return segment

    def open_for_reading(self) -> LogSegment:
        """Return a copy of the segment with separate, read-only files, for use in a job.

        The copy contains the current batches; appends, deletions and index rebuilds do not affect
        it. The caller closes it. Raises FileNotFoundError if the segment was deleted, or another
        OSError.
        """
        # Not created by `__init__`, which opens files for appends.
        copy = LogSegment.__new__(LogSegment)
        copy.base_offset = self.base_offset
        copy.index_is_suspect = copy.is_checked = copy._is_closed = False
        copy._files, copy._directory, copy._state = self._files, self._directory, self._state
        copy.records = FileRecords(self._files.open_read(self._path(LOG_SUFFIX)))
        copy._recent = RecentBatches()
        copy._age = self._age
        copy.indexes = self.indexes.copy_for_reading(self._state)
        copy.transactions = SegmentTransactions(self._files, "", self.base_offset)
        try:
            copy.indexes.open()
        except OSError:
            copy.close()
            raise
        # Set last: appends write a batch before its index entries, so this size includes all
        # batches to which the entries read above lead.
        copy.records.corrupt_ranges = self.records.corrupt_ranges
        copy.records.size_bytes = self.size_bytes
        return copy

    # -- state --------------------------------------------------------------------------------

    @property
    def size_bytes(self) -> int:
        """Size of the ``.log`` file in bytes."""
        return self.records.size_bytes

    @property
    def corrupt_ranges(self) -> Sequence[CorruptRange]:
        """Damaged ranges that recovery has kept; see `FileRecords`."""
        return self.records.corrupt_ranges

    @property
    def records_file(self) -> File:
        """The ``.log`` file."""
        return self.records.file

    @property
    def offset_index(self) -> OffsetIndex:
        """The ``.index`` file, opened if necessary."""
        return self.indexes.by_offset

    @property
    def time_index(self) -> TimeIndex:
        """The ``.timeindex`` file, opened if necessary."""
        return self.indexes.by_time

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp in the segment, in ms; -1 if no batch has a timestamp."""
        return self.indexes.maximum.timestamp

    @property
    def largest_timestamp(self) -> int:
        """`max_timestamp`, or the file's modification time if no batch has a timestamp."""
        if self.max_timestamp >= 0:
            return self.max_timestamp
        return self._files.modified_ms(self.records.file.path)

    def __repr__(self) -> str:
        return f"LogSegment({self.records.file.path!r}, size_bytes={self.size_bytes})"

    # -- append -------------------------------------------------------------------------------

    def should_roll(
        self,
        config: TopicConfig,
        nbytes: int,
        timestamp_ms: int,
        last_offset: int,
        now_ms: int,
    ) -> bool:
        """Return whether the next batch needs a new segment because of size, age or full indexes.

        An empty segment accepts every batch with offsets that the indexes can represent.
        """
        if last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            return True
        size_bytes = self.records.size_bytes
        if not size_bytes:
            return False
        if size_bytes > config.segment_bytes - nbytes:
            return True
        is_old = self._age.requires_roll(config, self.records, timestamp_ms, now_ms)
        return is_old or self.indexes.is_full

    def append(
        self, batch: Buffer, last_offset: int, max_timestamp: int, offset_of_max_timestamp: int
    ) -> int:
        """Write a batch and, every ``index.interval.bytes``, index entries.

        Returns the batch's position. `offset_of_max_timestamp` is the batch's last offset, because
        time index entries refer to a batch, not to a record. If this raises, nothing was appended,
        unless the error is HalfWritten.
        """
        position = self.size_bytes
        try:
            self.records.append(batch)
            self.indexes.add(position, last_offset, max_timestamp, offset_of_max_timestamp)
        except Exception as error:
            self.undo_append(position, error)
            raise
        if not position:
            self._age.begin(max_timestamp)
        self._recent.add(position, last_offset)
        return position

    def append_batches(self, data: Buffer, batches: Sequence[tuple[int, BatchHeader]]) -> int:
        """Write replicated batches with a single write; return the position of the first one.

        `batches` are their positions in `data` and their headers; offsets may have gaps. If this
        raises, nothing was appended, unless the error is HalfWritten.
        """
        start = self.size_bytes
        try:
            self.records.append(data)
            for position, header in batches:
                self.indexes.add(
                    start + position,
                    header.last_offset,
                    header.max_timestamp,
                    header.last_offset,
                )
        except Exception as error:
            self.undo_append(start, error)
            raise
        if not start:
            self._age.begin(batches[0][1].max_timestamp)
        for position, header in batches:
            if header.base_offset != self._recent.end_offset:
                self._recent.clear()
            self._recent.add(start + position, header.last_offset)
        return start

    def undo_append(self, position: int, error: Exception) -> None:
        """Remove the last batch, at `position`, and its index entries, because of `error`.

        Raises HalfWritten if the removal fails.
        """
        try:
            self.truncate_to_size(position)
        except Exception as problem:
            raise HalfWritten(f"{error}; cannot remove part of a batch: {problem!r}") from error

    # -- read ---------------------------------------------------------------------------------

    def find_offset(self, offset: int, *, nowait: bool = False) -> BatchPlace | None:
        """Return the first batch that ends at or after `offset`; None if there is no such batch.

        Costs no pread for a recent batch, otherwise one index lookup and usually one pread. Raises
        CorruptMessage if the scanned bytes are not batches. With `nowait`, raises UncachedLookup if
        the lookup has to wait for the disk or for a check of the whole segment.
        """
        recent = self._recent.find(offset, self.size_bytes)
        if recent is not None:
            return recent
        try:
            return self._find_by_index(offset, nowait)
        except (CorruptIndex, CorruptMessage) as error:
            self.index_is_suspect = True
            if nowait:
                # The reactor must not scan a segment, so jobs do that first.
                if not self.is_checked:
                    raise UncheckedSegment(self) from None
                if isinstance(error, CorruptMessage):
                    raise
        # Either the index entry was wrong or the log is damaged here. Only a scan from the
        # beginning of the segment shows which.
        return self.records.find_offset(offset, 0, nowait=nowait)

    def _find_by_index(self, offset: int, nowait: bool) -> BatchPlace | None:
        """Find `offset` by index. Raises CorruptIndex if an entry is wrong or too far away."""
        start = self.indexes.look_up(offset, nowait=nowait).position
        size_bytes = self.records.size_bytes
        if not 0 <= start < max(size_bytes, 1):
            raise CorruptIndex(f"{self!r}: an index entry points to byte {start}")
        end_of_gap = start + self.indexes.longest_gap_bytes
        for place in self.records.places_from(start, nowait=nowait):
            if place.last_offset >= offset:
                if place.position == start and start and place.base_offset > offset:
                    raise CorruptIndex(f"{self!r}: an index entry points past offset {offset}")
                return place
            # If the segment has been checked, the scan continues: another check would find no
            # closer entry.
            if place.position > end_of_gap and not self.is_checked:
                raise CorruptIndex(f"{self!r}: no index entry near offset {offset}")
        return None

    def note_checked(
        self, corrupt_ranges: list[CorruptRange], maximum: TimestampOffset | None
    ) -> None:
        """Record the result of a full scan; `maximum` is set if the indexes were rebuilt."""
        self.records.corrupt_ranges = corrupt_ranges
        if maximum is not None:
            self.indexes.note_rebuilt(maximum)
        self.index_is_suspect = False

    def position_of(self, offset: int, *, nowait: bool = False) -> int:
        """Return the byte position at which the batches below `offset` end.

        If `offset` is damaged, this is the start of the damage.
        """
        for damaged in self.corrupt_ranges:
            if damaged.base_offset <= offset < damaged.end_offset:
                return damaged.position
        place = self.find_offset(offset, nowait=nowait)
        return self.size_bytes if place is None else place.position

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        max_position: int,
        at_least_one: bool,
        nowait: bool = False,
    ) -> FileRegion | None:
        """Return a region from the batch that contains `offset` up to `max_position`.

        `max_bytes` may truncate the last batch, but never the first: with `at_least_one`, the first
        batch is returned whole, otherwise it is omitted. Returns None if all batches here are below
        `offset`, and an empty region if no bytes remain. Raises CorruptMessage if the batch is
        known to be damaged; with `nowait`, also UncachedLookup.
        """
        place = self._sound_place(offset, nowait)
        if place is None:
            return None
        end_position = max_position
        for damaged in self.corrupt_ranges:
            if place.position < damaged.position:
                end_position = min(end_position, damaged.position)
        nbytes = max_bytes if self.records.can_keep_open else min(max_bytes, COPIED_MAX_BYTES)
        # Never a part of the first batch: clients treat bytes without a whole batch as an error.
        if nbytes < place.size_bytes:
            nbytes = place.size_bytes if at_least_one or place.size_bytes <= max_bytes else 0
        nbytes = max(0, min(nbytes, end_position - place.position))
        return self.records.region(place.position, nbytes, nowait=nowait)

    def _sound_place(self, offset: int, nowait: bool) -> BatchPlace | None:
        """Return the result of `find_offset`. Raises CorruptMessage inside known damage."""
        for damaged in self.corrupt_ranges:
            if damaged.base_offset <= offset < damaged.end_offset:
                raise CorruptMessage(
                    f"{self.records.file.path}: offsets {damaged.base_offset} to "
                    f"{damaged.end_offset - 1} are damaged on disk"
                )
        return self.find_offset(offset, nowait=nowait)

    # -- truncate and check -------------------------------------------------------------------

    def truncate_to(self, offset: int) -> int:
        """Remove the batches that end at or after `offset`; return the number of bytes removed."""
        place = self.find_offset(offset)
        return self.truncate_at(self.size_bytes if place is None else place.position, offset)

    def truncate_at(self, position: int, offset: int) -> int:
        """Remove the batches from `position` on, which end at or after `offset`.

        Returns the number of bytes removed from the size. Raises OSError.
        """
        # Before the records, because an index entry must never lead past the end of the file.
        self.indexes.truncate_to(offset)
        self.transactions.truncate_to(offset)
        cut_bytes = self.records.truncate(position)
        self.records.repair()
        self._forget()
        self.indexes.maximum = self._read_maximum()
        return cut_bytes

    def truncate_to_size(self, size_bytes: int) -> None:
        """Undo all appends made since the segment had this size, including failed appends.

        Raises OSError.
        """
        self.records.repair()
        self.indexes.repair()
        if size_bytes < self.size_bytes:
            header = self.records.header_at(size_bytes)
            assert header is not None
            self.truncate_to(header.base_offset)

    def _read_maximum(self) -> TimestampOffset:
        """Return the last time index entry, or the largest timestamp in the batches after it."""
        maximum = self.indexes.last_time_entry
        position = self.indexes.look_up(maximum.offset, nowait=False).position
        with contextlib.suppress(CorruptMessage):  # A later read reports the damage.
            for _, header in self.records.batches_from(position):
                if header.max_timestamp > maximum.timestamp:
                    maximum = TimestampOffset(header.max_timestamp, header.last_offset)
        return maximum

    @property
    def ends_damaged(self) -> bool:
        """Whether the segment ends in known damage, so that nothing may be appended to it."""
        return bool(self.corrupt_ranges) and (
            self.corrupt_ranges[-1].end_position == self.size_bytes
        )

    def reset_indexes(self) -> None:
        """Empty both indexes, before `SegmentIndexes.add_found` fills them again."""
        self.indexes.reset()
        self._forget()
        self.records.corrupt_ranges = []
        self.index_is_suspect = False

    def _forget(self) -> None:
        """Discard cached facts about batches that may have been truncated."""
        self._recent.clear()
        if not self.size_bytes:
            self._age.reset()

    # -- seal, rename, delete -----------------------------------------------------------------

    def on_become_inactive(self) -> None:
        """Add the last time index entry, from which retention determines the segment's age."""
        self.indexes.add_last_entry()
        self.flush_indexes()

    def flush_indexes(self) -> None:
        """Write the index entries that are only in memory. Raises OSError."""
        self.indexes.flush()
        self.transactions.flush()

    @property
    def is_being_written(self) -> bool:
        """Whether the segment has a descriptor for appends."""
        return self.records.is_being_written

    def end_writing(self) -> None:
        """Release the descriptor for appends until the next one; all records must be durable."""
        self.records.end_writing()
        self.preallocate_at = 0  # The next append calls the hook `preallocate` again.

    def on_sealed(self) -> None:
        """Release the resources for appends: the descriptor and the positions of recent batches."""
        self._recent = RecentBatches()  # A new object, because a job may be reading the old one.
        self.records.end_writing()

    def sync_files(self) -> list[File]:
        """Return the files that a seal must sync: the records, then the open indexes."""
        return [self.records.file, *self.indexes.open_files, *self.transactions.open_files]

    def trim(self) -> None:
        """Release the space that is reserved for appends, while nothing is appended."""
        # The metadata log keeps its space, which the next startup needs on a full disk. If the
        # release fails, the blocks stay allocated until the segment is deleted.
        if not is_metadata_dir(self._directory):
            with contextlib.suppress(OSError):
                self.records.file.release()

    def release_indexes(self) -> None:
        """Close the index files to save descriptors; the next lookup opens them again.

        Entries that `SegmentIndexes.flush` has not written are lost, which only slows down lookups.
        `max_timestamp` remains in memory if it has been computed.
        """
        self.indexes.close()

    def rename(self, state: str, *, records_last: bool = False) -> None:
        """Change the second suffix of all files (``.deleted``); the caller syncs the directory.

        With `records_last`, all other files have durably been renamed before the records.
        """
        for suffix in reversed(SEGMENT_SUFFIXES) if records_last else SEGMENT_SUFFIXES:
            target = segment_path(self._directory, self.base_offset, suffix, state)
            if suffix == LOG_SUFFIX and records_last:
                self._files.sync_dir(self._directory)
            if self._files.exists(self._path(suffix)):
                self._files.rename(self._path(suffix), target)
        self._state = state  # Set last, so that a rename that has partly failed can be retried.
        self._note_paths()

    def delete_files(self) -> None:
        """Close the segment and unlink its files; missing files are not an error."""
        self.close()
        # The records come last, so that a crash does not leave indexes without records.
        for suffix in reversed(SEGMENT_SUFFIXES):
            path = self._path(suffix)
            if self._files.exists(path):
                self._files.unlink(path)

    def close(self) -> None:
        """Close the files, except those that a region still uses. Idempotent."""
        if not self._is_closed:
            self._is_closed = True
            self.records.close()
            self.release_indexes()
            self.transactions.close()

    def _note_paths(self) -> None:
        self.records.file.path = self._path(LOG_SUFFIX)
        self.transactions.move_to(self._path(TXN_INDEX_SUFFIX))
        self.indexes.move_to(self._directory, self._state)

    def _path(self, suffix: str) -> str:
        return segment_path(self._directory, self.base_offset, suffix, self._state)
