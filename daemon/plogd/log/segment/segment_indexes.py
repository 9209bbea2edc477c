"""The two indexes of a segment, and the rule for adding an entry.

Each `LogSegment` has one `SegmentIndexes`. A batch gets an offset index entry if it begins more
than ``index.interval.bytes`` after the last indexed batch; an entry with the segment's largest
timestamp so far is then added to the time index. Index files are opened on first use, so that a
startup with many old segments opens few files. Entries for up to 1 MiB of records are only in
memory, because writing each one separately took a tenth to a quarter of the CPU time of an append
of 10 KB; after a crash, the indexes of an active segment are rebuilt anyway.

A new segment has no index files. They are created with the first entry, or when the segment is
rolled or its log is closed cleanly; most partitions of a new topic never need them earlier. If they
cannot be created, the segment is used without them. A missing index is therefore damage only in a
segment that contains records and was not being written.

Source: Kafka 3.9 LogSegment.append, LogSegment.onBecomeInactiveSegment. Invariant: a failed append
leaves both indexes unchanged.
"""

from __future__ import annotations

import contextlib

from plog.records.batch import BatchHeader
from plogd.log.file_names import CLEANED_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, segment_path
from plogd.log.io_errors import is_out_of_files, is_refusal
from plogd.log.segment.index_file import MAX_RELATIVE_OFFSET, CorruptIndex
from plogd.log.segment.offset_index import OffsetIndex, OffsetPosition
from plogd.log.segment.time_index import NO_TIMESTAMP, TimeIndex, TimestampOffset
from plogd.log.segment.uncached_lookup import uncached_file
from plogd.ports import File, Files
from plogd.topic_config import TopicConfig

_MIN_BYTES = 2 * TimeIndex.LAYOUT.size
"""The smallest ``segment.index.bytes`` with room for an entry in both indexes; the time index
reserves its last entry for the roll."""

_FLUSH_BYTES = 1 << 20
"""The distance in the ``.log`` after which new entries are written. It is small compared with
`_MAX_UNINDEXED_BYTES`, because copies for reading see only the files."""

_MAX_UNINDEXED_BYTES = 16 << 20
"""More bytes than any append adds after the last entry; a larger gap indicates damage."""


class SegmentIndexes:
    """The ``.index`` and ``.timeindex`` files of a segment, opened on demand."""

    __slots__ = (
        "_config",
        "_directory",
        "_files",
        "_flushed_position",
        "_is_full",
        "_last_indexed_position",
        "_maximum",
        "_may_open",
        "_offset_index",
        "_paths",
        "_read_only",
        "_time_index",
        "base_offset",
        "is_new",
        "lacks_last_entry",
    )

    def __init__(
        self,
        files: Files,
        directory: str,
        base_offset: int,
        config: TopicConfig,
        state: str,
        *,
        read_only: bool = False,
    ) -> None:
        self.base_offset = base_offset
        self.is_new = False
        """Whether the files may not exist yet, because no entry has been added."""
        self.lacks_last_entry = False
        """Whether the disk was too full for the entry with the largest timestamp."""
        self._files = files
        self._config = config
        self._read_only = read_only
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._may_open = False
        """Whether a job has read the ``.index`` into the page cache, so that opening it does not
        block."""
        # None means not read from the files yet, or out of date.
        self._is_full: bool | None = None
        self._maximum: TimestampOffset | None = None
        self._last_indexed_position: int | None = None
        self._flushed_position = 0
        """The position of the batch with which the entries were last written."""
        self.move_to(directory, state)

    def move_to(self, directory: str, state: str) -> None:
        """Set the paths of the files."""
        self._directory = directory
        offset_path = segment_path(directory, self.base_offset, INDEX_SUFFIX, state)
        time_path = segment_path(directory, self.base_offset, TIME_INDEX_SUFFIX, state)
        self._paths = offset_path, time_path
        if self._offset_index is not None:
            # The file pool reopens a closed file by its path.
            self._offset_index.file.path = offset_path
        if self._time_index is not None:
            self._time_index.file.path = time_path

    @property
    def by_offset(self) -> OffsetIndex:
        """The ``.index`` file, opened if necessary."""
        index = self._offset_index
        if index is None:
            index = OffsetIndex(
                self._files,
                self._paths[0],
                self.base_offset,
                self._config.segment_index_bytes,
                read_only=self._read_only,
            )
            if self._offset_index is not None:  # A job's lookup opened it first.
                index.close()
                return self._offset_index
            self._offset_index = index
        return index

    def look_up(self, offset: int, *, nowait: bool) -> OffsetPosition:
        """Call `OffsetIndex.lookup`; with `nowait`, a closed index counts as uncached."""
        if self.is_new:
            return OffsetPosition(self.base_offset, 0)
        if self._offset_index is None:
            # The index has no entries, so a quiet log needs neither a job nor a descriptor for it.
            if self._last_indexed_position == 0:
                return OffsetPosition(self.base_offset, 0)
            if nowait and not self._may_open:
                self._may_open = True
                raise uncached_file(self._files, self._paths[0])
        return self.by_offset.lookup(offset, nowait=nowait)

    def first_entry_from(self, position: int, *, nowait: bool) -> OffsetPosition | None:
        """Return the first entry of the ``.index`` at or after byte `position`, or None.

        Raises CorruptIndex; with `nowait`, also UncachedLookup.
        """
        self.look_up(self.base_offset, nowait=nowait)  # Opens the file, unless it has no entry.
        index = self._offset_index
        return None if index is None else index.first_from(position, nowait=nowait)

    @property
    def by_time(self) -> TimeIndex:
        """The ``.timeindex`` file, opened if necessary."""
        index = self._time_index
        if index is None:
            index = TimeIndex(
                self._files,
                self._paths[1],
                self.base_offset,
                self._config.segment_index_bytes,
                read_only=self._read_only,
            )
            if self._time_index is not None:  # A job's lookup opened it first.
                index.close()
                return self._time_index
            self._time_index = index
        return index

    def look_up_time(self, timestamp: int) -> TimestampOffset:
        """Call `TimeIndex.lookup`."""
        return self.last_time_entry if self.is_new else self.by_time.lookup(timestamp)

    @property
    def last_offset_entry(self) -> OffsetPosition:
        """The last entry of the ``.index``; in an empty index, the start of the segment."""
        return OffsetPosition(self.base_offset, 0) if self.is_new else self.by_offset.last_entry

    @property
    def last_time_entry(self) -> TimestampOffset:
        """The last entry of the ``.timeindex``; in an empty index, one without a timestamp."""
        if self.is_new:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        return self.by_time.last_entry

    @property
    def maximum(self) -> TimestampOffset:
        """The largest timestamp so far, and the last offset of the first batch that contains it."""
        if self._maximum is None:
            self._maximum = self.last_time_entry
        return self._maximum

    @maximum.setter
    def maximum(self, maximum: TimestampOffset) -> None:
        self._maximum = maximum

    @property
    def is_full(self) -> bool:
        """Whether the segment must roll because an index is full."""
        if self._is_full is None:
            # A new segment is not opened: that would create the files.
            self._is_full = (
                self._config.segment_index_bytes < _MIN_BYTES
                if self.is_new
                else self.by_offset.is_full or self.by_time.is_full
            )
        return self._is_full

    @property
    def open_files(self) -> list[File]:
        """The open index files; the others have not been written since they were closed."""
        indexes = (self._offset_index, self._time_index)
        return [index.file for index in indexes if index is not None]

    @property
    def longest_gap_bytes(self) -> int:
        """The largest number of bytes between two entries on disk, unless some were left out."""
        return _MAX_UNINDEXED_BYTES + _FLUSH_BYTES + self._config.index_interval_bytes

    def open(self) -> None:
        """Open both files if they exist. Raises OSError."""
        if not self.is_new:
            with contextlib.suppress(CorruptIndex):  # A lookup reports the missing file again.
                _ = self.by_offset, self.by_time

    def copy_for_reading(self, state: str) -> SegmentIndexes:
        """Return read-only indexes on the same files, which have the second suffix `state`."""
        copy = SegmentIndexes(
            self._files,
            self._directory,
            self.base_offset,
            self._config,
            state,
            read_only=True,
        )
        copy.is_new = self.is_new
        copy.lacks_last_entry = self.lacks_last_entry
        return copy

    def begin_rebuild(self) -> SegmentIndexes:
        """Return empty indexes with ``.cleaned`` names, which a job fills. Raises OSError."""
        new = SegmentIndexes(
            self._files, self._directory, self.base_offset, self._config, CLEANED_SUFFIX
        )
        new.reset()
        return new

    def put_in_place(self) -> None:
        """Durably replace the old files with the rebuilt, closed files.

        Runs as a job. Until `note_rebuilt` is called, readers use the old files, which are still
        open. Raises OSError.
        """
        # A crash between the two renames is harmless, because each index is checked by itself.
        for path in self._paths:
            self._files.rename(path, path.removesuffix(CLEANED_SUFFIX))
        self._files.sync_dir(self._directory)

    def discard(self) -> None:
        """Unlink the files that `begin_rebuild` created."""
        self.close()
        for path in self._paths:
            if self._files.exists(path):
                self._files.unlink(path)

    def note_rebuilt(self, maximum: TimestampOffset) -> None:
        """Switch to the rebuilt files, which now have the final names."""
        self.close()
        self.is_new = self.lacks_last_entry = False
        self._is_full = self._last_indexed_position = None
        self._maximum = maximum

    def begin_new(self) -> None:
        """Begin two empty indexes for a new segment, without their files."""
        self.is_new = True
        self._maximum = TimestampOffset(NO_TIMESTAMP, self.base_offset)
        self._last_indexed_position = 0
        self._is_full = None

    def make_files(self) -> None:
        """Create the files of a new segment, unless they exist. Raises OSError."""
        if not self.is_new:
            return
        offset_index = self.by_offset
        try:
            _ = self.by_time
        except Exception:  # Kafka and `sanity_check` expect both files, or none.
            self._offset_index = None
            offset_index.close()
            with contextlib.suppress(OSError):
                self._files.unlink(self._paths[0])
            raise
        self.is_new = False

    def make_missing_files(self) -> bool:
        """Create the files of a new segment if the disk has room; return whether they are new.

        A clean stop calls this, because Kafka expects the files. Raises OSError.
        """
        if not self.is_new:
            return False
        try:
            self.make_files()
        except OSError as error:
            if not is_refusal(error):  # On a full disk, plog starts without these files.
                raise
        return not self.is_new

    def add(
        self,
        position: int,
        last_offset: int,
        timestamp: int,
        offset_of_timestamp: int,
        *,
        always: bool = False,
        if_room: bool = False,
    ) -> None:
        """Update the indexes for the next batch; with `always`, add an entry for the batch.

        If this raises, both indexes are unchanged except for bytes that `repair` removes. The entry
        is left out if its file cannot be created or opened because no inode, space or descriptor is
        left, and with `if_room` also if the disk has no room for the entry. Raises OSError.
        """
        assert 0 <= last_offset - self.base_offset <= MAX_RELATIVE_OFFSET
        old_maximum = self._maximum or self.maximum
        if timestamp > old_maximum.timestamp:
            self._maximum = TimestampOffset(timestamp, offset_of_timestamp)
        try:
            if self._last_indexed_position is None:
                self._last_indexed_position = self.last_offset_entry.position
            if always or position - self._last_indexed_position > self._config.index_interval_bytes:
                self._add_entries(position, last_offset)
        except Exception as error:
            # Connected clients must be able to produce even if all file descriptors are in use.
            if isinstance(error, OSError) and (
                is_out_of_files(error) or (if_room and is_refusal(error))
            ):
                return
            # The batch is not part of the log if its entries cannot be added.
            self._maximum = old_maximum
            raise

    @property
    def next_entry_position(self) -> int:
        """The position from which the next batch gets an entry; 0 if that is not known."""
        if self._last_indexed_position is None:
            return 0
        return self._last_indexed_position + self._config.index_interval_bytes + 1

    def note_timestamp(self, timestamp: int, offset: int) -> None:
        """Note the largest timestamp of batches that get no entries, and its offset."""
        if timestamp > self.maximum.timestamp:
            self._maximum = TimestampOffset(timestamp, offset)

    def add_found(self, position: int, header: BatchHeader, *, always: bool) -> None:
        """Update emptied indexes for the next batch in the file, as an append would.

        Set `always` to add an entry even within ``index.interval.bytes``: after damage, a lookup
        cannot scan the bytes before the batch.
        """
        last_offset = header.last_offset
        # On a full disk, the entry is left out: a log must load, and indexes are only hints.
        self.add(
            position, last_offset, header.max_timestamp, last_offset, always=always, if_room=True
        )

    def _add_entries(self, position: int, last_offset: int) -> None:
        try:
            self.make_files()
        except OSError as error:
            if is_refusal(error):  # As long as the records fit, a segment needs no indexes.
                return
            raise
        by_offset, by_time = self.by_offset, self.by_time
        if self.is_full:
            return  # Happens only in a rebuild, if segment.index.bytes was lowered.
        self._is_full = None
        counts = by_offset.count, by_time.count
        by_offset.append(last_offset, position)
        by_time.maybe_append(*self.maximum)
        # A truncation may have moved the end of the log before the position.
        if not 0 <= position - self._flushed_position < _FLUSH_BYTES:
            try:
                self.flush()
            except Exception:  # An append that fails must leave both indexes unchanged.
                by_offset.truncate_to_count(counts[0])
                by_time.truncate_to_count(counts[1])
                raise
            self._flushed_position = position
        self._last_indexed_position = position
        self._is_full = by_offset.is_full or by_time.is_full

    def flush(self) -> None:
        """Write the entries that are only in memory. If this raises OSError, they stay there."""
        for index in (self._offset_index, self._time_index):
            if index is not None:
                index.flush()

    def add_last_entry(self) -> None:
        """Complete the files when the segment is rolled. Raises OSError.

        Adds an entry with the largest timestamp, for retention.
        """
        # Kafka treats a missing index as damage, so both files exist even without an entry.
        self.make_files()
        # The entry may fill the index. If the roll then fails, the segment receives more appends.
        self._is_full = None
        self.by_time.maybe_append(*self.maximum, skip_full_check=True)
        self.flush()
        self.lacks_last_entry = False

    def repair(self) -> None:
        """Remove bytes that a failed `add` has left in the files. Raises OSError."""
        for index in (self._offset_index, self._time_index):
            if index is not None:
                index.repair()

    def truncate_to(self, offset: int) -> None:
        """Remove entries for batches that end at or after `offset`; the caller sets `maximum`."""
        # The files of a new segment are not created here: an append that fails on a full disk must
        # be undone without any space.
        if not self.is_new:
            self.by_offset.truncate_to(offset)
            self.by_time.truncate_to(offset)
        self._maximum = self._last_indexed_position = self._is_full = None

    def reset(self) -> None:
        """Empty both indexes, if they exist. Raises OSError."""
        existing = [path for path in self._paths if self._files.exists(path)]
        if len(existing) < len(self._paths):
            # No file is created: a log must load on a disk that has no room for another file.
            self.close()
            for path in existing:
                self._files.unlink(path)
            return self.begin_new()
        self.by_offset.truncate_to_count(0)
        self.by_time.truncate_to_count(0)
        self.is_new = False
        self._maximum = TimestampOffset(NO_TIMESTAMP, self.base_offset)
        self._last_indexed_position = self._is_full = None

    def sanity_check(self, log_size_bytes: int) -> None:
        """Check everything that can be checked without the ``.log`` file. Raises CorruptIndex."""
        missing = [path for path in self._paths if not self._files.exists(path)]
        if not log_size_bytes and len(missing) == len(self._paths):
            return self.begin_new()
        if missing:
            raise CorruptIndex(f"{missing[0]} is missing")
        self.by_offset.sanity_check(log_size_bytes)
        self.by_time.sanity_check()
        unindexed_bytes = log_size_bytes - self.by_offset.last_entry.position
        if unindexed_bytes > self.longest_gap_bytes:
            raise CorruptIndex(f"{self._paths[0]} does not cover the last part of the log")

    def close(self) -> None:
        """Close the files; the next use opens them again. See `flush`."""
        if self._offset_index is not None and self._time_index is not None:
            self._is_full = self.is_full  # Otherwise, the next use would open both files.
            self._last_indexed_position = self._offset_index.last_entry.position
        self._may_open = False
        for index in (self._offset_index, self._time_index):
            if index is not None:
                index.close()
        self._offset_index = self._time_index = None
