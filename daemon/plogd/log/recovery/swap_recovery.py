"""Complete the replacement of segments by a compacted one, which a crash has interrupted.

The records of the compacted segment have the suffix ``.swap`` as soon as it replaces the others
(compaction/segment_swap.py). Startup then removes these, and removes the suffix. log_recovery.py
calls this module first, in its job.

Source: Kafka 3.9 LogLoader.removeTempFilesAndCollectSwapFiles, LogLoader.load. Invariant: if this
is interrupted, the next startup does the rest.
"""

from __future__ import annotations

import contextlib
import posixpath

from plog.errors import CorruptMessage
from plogd.log import file_names
from plogd.log.file_names import LOG_SUFFIX, SWAP_SUFFIX
from plogd.log.recovery.load_request import LoadRequest
from plogd.log.segment.log_segment import LogSegment
from plogd.ports import Files


def complete_swaps(files: Files, request: LoadRequest) -> None:
    """Put compacted segments in place, and remove other ``.swap`` files. Raises OSError."""
    found = [
        (name, parsed)
        for name in files.listdir(request.directory)
        if (parsed := file_names.parse_segment_file_name(name)) is not None
    ]
    swapped = sorted(
        parsed.base_offset
        for _, parsed in found
        if (parsed.suffix, parsed.state) == (LOG_SUFFIX, SWAP_SUFFIX)
    )
    for name, parsed in found:
        if parsed.state == SWAP_SUFFIX and parsed.base_offset not in swapped:
            files.unlink(posixpath.join(request.directory, name))
    plain = sorted(
        parsed.base_offset
        for _, parsed in found
        if parsed.suffix == LOG_SUFFIX and not parsed.state
    )
    for base_offset in swapped:
        _complete_swap(files, request, base_offset, plain)


def _complete_swap(files: Files, request: LoadRequest, base_offset: int, plain: list[int]) -> None:
    new = LogSegment(files, request.directory, base_offset, request.config, SWAP_SUFFIX)
    try:
        end_offset = _end_of(new)
        if base_offset in plain:
            _remove_transaction_index(files, request.directory, base_offset)
        # Newest first, so that the log never has a gap. A replaced segment whose records are all
        # outdated may follow the end of the new one; it stays, and is compacted again.
        for old_offset in reversed(plain):
            if base_offset <= old_offset < max(end_offset, base_offset + 1):
                old = LogSegment(files, request.directory, old_offset, request.config)
                old.delete_files()
        files.sync_dir(request.directory)
        new.rename("", records_last=True)
        files.sync_dir(request.directory)
    finally:
        new.close()


def _remove_transaction_index(files: Files, directory: str, base_offset: int) -> None:
    """Durably remove the index of the old segment, while its records still exist."""
    # Without the records, the next startup would take the file for that of the new segment, which
    # may have none.
    path = file_names.segment_path(directory, base_offset, file_names.TXN_INDEX_SUFFIX)
    if files.exists(path):
        files.unlink(path)
        files.sync_dir(directory)


def _end_of(segment: LogSegment) -> int:
    end_offset = segment.base_offset
    with contextlib.suppress(CorruptMessage):  # Recovery reports the damage.
        for _, header in segment.records.batches_from(0):
            end_offset = header.next_offset
    return end_offset
