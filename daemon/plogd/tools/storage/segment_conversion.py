"""Convert a segment that contains messages with magic 0 or 1 to magic 2.

Offsets and timestamps are kept, batches with magic 2 are copied byte for byte, and the indexes are
rebuilt. The functions work through a Files port on files that no other process uses.

`replace_segment` converts in place. At every moment, either the old or the new segment exists,
possibly without indexes, which Kafka and plog rebuild. The new file has the ``.cleaned`` suffix
until a rename replaces the old file; both brokers remove files with this suffix.

Source: plog/records/legacy.py for the formats; Kafka 3.9 LogLoader for the handling of leftovers.
"""

from __future__ import annotations

import itertools
import posixpath
from collections.abc import Callable, Iterator

from plog.errors import CorruptMessage, PlogError
from plog.records.batch import parse_header
from plog.records.legacy import LegacyBatch, read_legacy_batch, upgrade
from plogd.log import file_names
from plogd.log.segment.index_file import MAX_RELATIVE_OFFSET
from plogd.log.segment.log_segment import LogSegment
from plogd.ports import File, Files
from plogd.tools.storage.log_inspection import FoundBatch, walk_file
from plogd.topic_config import TopicConfig

_SEGMENT_SUFFIXES = (file_names.LOG_SUFFIX, file_names.INDEX_SUFFIX, file_names.TIME_INDEX_SUFFIX)
# Only the index settings are used, and their defaults are the same as Kafka's.
_CONFIG = TopicConfig()


class NotConvertible(PlogError):
    """A segment cannot be converted to magic 2; the message contains its path and the cause."""


def convert_segment(
    files: Files,
    source: str,
    target: str,
    base_offset: int,
    *,
    may_be_torn: bool,
    progress: Callable[[int], None],
    state: str = "",
) -> int:
    """Convert a segment from directory `source` to directory `target`; return its new size.

    With `may_be_torn`, the new segment ends at the first damage, as it would after recovery from a
    crash. `progress` is called with the number of bytes read. `state` is a second suffix. Raises
    NotConvertible, OSError.
    """
    # An earlier attempt that was interrupted may have left files.
    for suffix in _SEGMENT_SUFFIXES:
        leftover = file_names.segment_path(target, base_offset, suffix, state)
        if files.exists(leftover):
            files.unlink(leftover)
    path = file_names.segment_path(source, base_offset, file_names.LOG_SUFFIX)
    file = files.open_read(path)
    segment = LogSegment(files, target, base_offset, _CONFIG, state)
    try:
        try:
            for batch in _converted(file, may_be_torn=may_be_torn, progress=progress):
                _append(segment, batch)
        except CorruptMessage as error:
            raise NotConvertible(
                f"cannot convert the old messages in {path}: {error}; start Kafka, wait until "
                "retention has removed them or copy the topic, then try again"
            ) from error
        # Adds the last entry of the time index, as when a broker rolls a segment.
        segment.on_become_inactive()
        for written in segment.sync_files():
            written.sync()
        return segment.size_bytes
    finally:
        segment.close()
        file.close()


def _append(segment: LogSegment, batch: bytes) -> None:
    header = parse_header(batch)
    # Index entries contain relative offsets of 32 bits.
    if header.last_offset - segment.base_offset > MAX_RELATIVE_OFFSET:
        raise CorruptMessage(
            f"offset {header.last_offset} is too far from the segment's base offset"
        )
    segment.append(
        batch,
        last_offset=header.last_offset,
        max_timestamp=header.max_timestamp,
        offset_of_max_timestamp=header.last_offset,  # As in Kafka, of the whole batch.
    )


def _converted(
    file: File, *, may_be_torn: bool, progress: Callable[[int], None]
) -> Iterator[bytes]:
    """Yield the batches of a segment, converted to magic 2."""
    reading = _Reading(file, may_be_torn, progress)
    # A segment contains both formats if the topic's message format was changed while it was active.
    groups = itertools.groupby(walk_file(file), key=lambda found: found.magic == 2)
    for is_current, group in groups:
        if is_current:
            yield from map(reading.read, group)
        else:
            yield from upgrade(reading.legacy(group))
        if reading.is_torn:
            return
    if reading.end_position < file.size() and not may_be_torn:
        raise CorruptMessage(f"there is no batch at byte {reading.end_position}")


class _Reading:
    """The position in a segment; `is_torn` is set at damage that ends the segment."""

    def __init__(self, file: File, may_be_torn: bool, progress: Callable[[int], None]) -> None:
        self._file = file
        self._may_be_torn = may_be_torn
        self._progress = progress
        self.end_position = 0
        self.is_torn = False

    def read(self, found: FoundBatch) -> bytes:
        """Return the bytes of a batch."""
        data = self._file.pread(found.size_bytes, found.position)
        self.end_position = found.position + found.size_bytes
        self._progress(found.size_bytes)
        return data

    def legacy(self, group: Iterator[FoundBatch]) -> Iterator[LegacyBatch]:
        """Yield the old messages of a group, up to a damaged message if the segment may be torn."""
        for found in group:
            try:
                yield read_legacy_batch(self.read(found))
            except CorruptMessage as error:
                if self._may_be_torn:
                    # Recovery after a crash would truncate the log here, too.
                    self.is_torn = True
                    return
                raise CorruptMessage(
                    f"the message at byte {found.position}, offset {found.base_offset}: {error}"
                ) from error


def replace_segment(
    files: Files,
    directory: str,
    base_offset: int,
    *,
    may_be_torn: bool,
    progress: Callable[[int], None],
) -> None:
    """Convert a segment in place; a crash leaves it usable. Raises NotConvertible, OSError."""
    state = file_names.CLEANED_SUFFIX
    try:
        convert_segment(
            files,
            directory,
            directory,
            base_offset,
            may_be_torn=may_be_torn,
            progress=progress,
            state=state,
        )
    # An OSError leaves the files, which the next attempt removes.
    except PlogError:
        # The old segment stays in use, and files from the failed attempt must not remain.
        for suffix in _SEGMENT_SUFFIXES:
            path = file_names.segment_path(directory, base_offset, suffix, state)
            if files.exists(path):
                files.unlink(path)
        raise
    # The new files must be durable before any old file is removed.
    files.sync_dir(directory)
    for suffix in (file_names.INDEX_SUFFIX, file_names.TIME_INDEX_SUFFIX):
        path = file_names.segment_path(directory, base_offset, suffix)
        if files.exists(path):
            files.unlink(path)
    files.sync_dir(directory)  # The old segment's indexes must not reappear.
    # The .log file comes first: brokers rebuild missing indexes, but delete an index without a log.
    for suffix in _SEGMENT_SUFFIXES:
        new = file_names.segment_path(directory, base_offset, suffix, state)
        if files.exists(new):
            files.rename(new, file_names.segment_path(directory, base_offset, suffix))
        files.sync_dir(posixpath.dirname(new))
