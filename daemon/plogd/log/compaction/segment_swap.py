"""Put a compacted segment in the place of the segments that it replaces.

The new files have second suffixes. Their renames make the replacement atomic:

1. `commit`: the transaction index and then the records get the suffix ``.swap``. From now on, a
   startup completes the replacement; before, it removes the new files.
2. In memory, the log uses the new segment.
3. `complete`: the old files are renamed to ``.deleted``, the new ones lose their suffix, the
   records last, and the old files are unlinked.

The directory is synced between the steps, because a power loss may undo or keep each rename. A
reader of an old segment keeps its file open. All functions run as jobs on the log directory's lane.

Source: Kafka 3.9 LocalLog.replaceSegments, LogLoader.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from plogd.log.compaction.cleaned_segment import unfinished_paths
from plogd.log.file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    TXN_INDEX_SUFFIX,
    parse_segment_file_name,
    segment_path,
)
from plogd.log.io_errors import is_refusal
from plogd.log.producer_snapshot import ProducerSnapshots
from plogd.log.segment.log_segment import LogSegment
from plogd.ports import Files
from plogd.topic_config import TopicConfig


def commit(files: Files, directory: str, base_offset: int, config: TopicConfig) -> LogSegment:
    """Let the new segment replace the old ones, and return it.

    If this raises an OSError that is a refusal, the new segment has been removed again. Otherwise,
    a later startup would put it in the place of segments that have changed since.
    """
    try:
        return _commit(files, directory, base_offset, config)
    except OSError as error:
        if is_refusal(error):
            discard(files, directory, base_offset)
        raise


def _commit(files: Files, directory: str, base_offset: int, config: TopicConfig) -> LogSegment:
    # Before the records, because a startup that completes the replacement needs this index.
    for suffix in (TXN_INDEX_SUFFIX, LOG_SUFFIX):
        path = segment_path(directory, base_offset, suffix, CLEANED_SUFFIX)
        if files.exists(path):
            files.rename(path, segment_path(directory, base_offset, suffix, SWAP_SUFFIX))
        files.sync_dir(directory)
    segment = LogSegment(files, directory, base_offset, config, SWAP_SUFFIX)
    try:
        if files.exists(segment_path(directory, base_offset, TXN_INDEX_SUFFIX, SWAP_SUFFIX)):
            segment.transactions.open()
        segment.indexes.open()
    except BaseException:
        segment.close()
        raise
    return segment


def complete(files: Files, directory: str, old: Sequence[LogSegment], new: LogSegment) -> None:
    """Remove the old files, and give the new ones their names. Can be repeated. Raises OSError."""
    for segment in reversed(old):
        # Its indexes first: after a power loss, a plain transaction index without records must be
        # that of the new segment.
        segment.rename(DELETED_SUFFIX, records_last=segment.base_offset == new.base_offset)
    files.sync_dir(directory)
    records = new.records.file
    # Kept open: a read at this moment could otherwise reopen the file by its old name, fail, and
    # take the directory offline.
    held = records.retain_for_writing(is_reserved=False)
    try:
        new.rename("", records_last=True)
    finally:
        held.close()
        records.end_writing()
    files.sync_dir(directory)
    snapshots = ProducerSnapshots(files, directory)
    for segment in old:
        segment.delete_files()
        if segment.base_offset != new.base_offset:  # Otherwise, the next startup would do it.
            snapshots.delete(segment.base_offset)


def discard(files: Files, directory: str, base_offset: int) -> None:
    """Remove the files of a new segment that is not needed.

    Raises OSError if the records cannot be removed; other files may remain.
    """
    records = segment_path(directory, base_offset, LOG_SUFFIX, SWAP_SUFFIX)
    # The records first: without them, a startup removes the others.
    if files.exists(records):
        files.unlink(records)
        files.sync_dir(directory)
    paths = [
        *unfinished_paths(directory, base_offset),
        segment_path(directory, base_offset, TXN_INDEX_SUFFIX, SWAP_SUFFIX),
    ]
    with contextlib.suppress(OSError):
        for path in paths:
            if files.exists(path):
                files.unlink(path)


def remove_unfinished(files: Files, directory: str) -> None:
    """Remove the files that an interrupted compaction has left, if possible."""
    with contextlib.suppress(OSError):
        found = [
            parsed
            for name in files.listdir(directory)
            if (parsed := parse_segment_file_name(name)) is not None
        ]
        for parsed in found:
            if (parsed.suffix, parsed.state) == (LOG_SUFFIX, CLEANED_SUFFIX):
                discard(files, directory, parsed.base_offset)
