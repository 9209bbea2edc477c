"""Make a log durable at a clean stop, so that the next startup can skip its recovery.

`Log.close_durably` calls `sync_for_clean_stop` in a job, while nothing is appended.

Source: Kafka 3.9 LogManager.shutdown, UnifiedLog.close.
"""

from __future__ import annotations

from typing import Protocol

from plogd.log.leader_epochs import LeaderEpochs
from plogd.log.producer_state import ProducerStateManager
from plogd.log.segment.segments import Segments
from plogd.log.unsynced import Unsynced
from plogd.ports import Files


class StoppingLog(Protocol):
    """The parts of a `Log` that a clean stop uses."""

    directory: str
    leader_epochs: LeaderEpochs
    producer_state: ProducerStateManager
    unsynced: Unsynced
    log_end_offset: int
    durable_end_offset: int
    recovery_point: int

    @property
    def segments(self) -> Segments:
        """All segments; the last one receives appends."""
        ...


def sync_for_clean_stop(log: StoppingLog, files: Files) -> None:
    """Make the log durable, including what recovery would have to compute. Raises OSError."""
    _add_last_entries(log)
    # Syncing idle logs again would delay the shutdown of a broker with many partitions.
    if _is_on_disk(log):
        _sync_missing_indexes(log, files)
    else:
        _sync_completely(log, files)
        log.durable_end_offset = log.recovery_point = log.log_end_offset


def _add_last_entries(log: StoppingLog) -> None:
    """Complete the time indexes that recovery could not complete, because the disk was full.

    The next startup does not read these segments, and would not know their largest timestamps.
    """
    for segment in log.segments:
        if segment.indexes.lacks_last_entry:
            segment.on_become_inactive()
            for file in segment.sync_files():
                file.sync()


def _is_on_disk(log: StoppingLog) -> bool:
    """Return whether the log has not changed since it was created or cleanly loaded."""
    end = log.log_end_offset
    if log.unsynced.has_new_files or log.recovery_point < end or log.leader_epochs.is_dirty:
        return False
    return not end or log.producer_state.snapshots.exists(end)


def _sync_completely(log: StoppingLog, files: Files) -> None:
    """Write and sync everything that the next startup reads."""
    # The next startup would rebuild a time index that lacks its last entry.
    log.segments.active.on_become_inactive()
    for segment in log.unsynced.unsealed:
        segment.transactions.flush()
        segment.trim()
        for file in segment.sync_files():
            file.sync()
    # After the records, because a snapshot proves that all records below it are durable.
    log.producer_state.prepare_snapshot(log.log_end_offset)()
    log.leader_epochs.flush()
    files.sync_dir(log.directory)


def _sync_missing_indexes(log: StoppingLog, files: Files) -> None:
    """Create the index files of the active segment if they are missing."""
    active = log.segments.active
    # Without records, the next startup does not need the new files, so they are not synced.
    if active.indexes.make_missing_files() and active.size_bytes:
        files.sync_dir(log.directory)
