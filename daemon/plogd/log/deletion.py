"""Delete segments and partition directories: rename them now, unlink them later.

A file first gets a ``.deleted`` name, and a directory a ``-delete`` name. The files are unlinked
after ``file.delete.delay.ms``, so that readers have time to close them, or at the next startup if
the broker stops before that. All steps are jobs on the log directory's lane. retention.py and the
controller decide what to delete.

A failed disk takes the log directory offline. A full disk, a missing file or a bug affects only one
log or directory, and the deletion is retried after `RETRY_MS`.

Source: Kafka 3.9 LocalLog.deleteSegmentFiles, LogManager.asyncDelete. Invariant: a crash never
leaves a gap in a log. The log start offset is on disk before the first file below it is renamed; if
a full disk prevents that, files are renamed and synced one at a time.
"""

from __future__ import annotations

import posixpath
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from plog.types import TopicPartition
from plogd.fair_queue import FairQueue, Slices
from plogd.log import file_names
from plogd.log.housekeeping import RETRY_MS, Housekeeping
from plogd.log.io_errors import is_refusal
from plogd.log.log import Log
from plogd.log.segment.log_segment import LogSegment
from plogd.ports import Files, Ports, spawn

_REMOVED_PER_JOB = 50
"""Maximum number of directories that one job removes, so that the lane's other jobs can run."""
_TASK = "deletion"
_LEFT = "at the next startup, the broker removes it or moves it to a -stray directory"


class _Retired(NamedTuple):
    """Segments that were removed from a log after so many restarts of it."""

    log: Log
    segments: Sequence[LogSegment]
    restarts: int


class Deletions:
    """Deletes segments and directories for all logs of a broker. Called on the reactor's thread.

    `write_log_starts(log_dir)` writes the log start offsets for a directory and returns whether
    that succeeded; `storage_failed(log_dir, error)` takes a log directory offline.
    """

    def __init__(
        self,
        ports: Ports,
        *,
        fair_queue: FairQueue,
        housekeeping: Housekeeping,
        write_log_starts: Callable[[str], Awaitable[bool]],
        storage_failed: Callable[[str, OSError], None],
    ) -> None:
        self._files = ports.files
        self._jobs = ports.jobs
        self._timers = ports.timers
        self._random = ports.random
        self._queue = fair_queue
        self._housekeeping = housekeeping
        self._write_log_starts = write_log_starts
        self._storage_failed = storage_failed
        self._retired: dict[str, list[_Retired]] = {}
        """Segments of logs with a new start offset that is not on disk yet, by log directory."""

    # -- segments -----------------------------------------------------------------------------

    def retire(self, log: Log, segments: Sequence[LogSegment], restarts: int) -> None:
        """Rename, and later unlink, segments that were removed from `log`.

        `restarts` is the log's number of restarts when they were removed.
        """
        self._add_retired(_Retired(log, segments, restarts))

    def _add_retired(self, retired: _Retired) -> None:
        log_dir = retired.log.log_dir
        if log_dir not in self._retired:
            self._retired[log_dir] = []
            # Deferred, because retention may remove segments from thousands of logs in one pass,
            # and one write of the log start offsets then covers them all.
            self._timers.call_later(0, lambda: self._rename_retired(log_dir))
        self._retired[log_dir].append(retired)

    def _rename_retired(self, log_dir: str) -> None:
        retired = self._retired.pop(log_dir)

        def failed(error: Exception) -> None:
            if self._is_disk_failure(log_dir, error):
                for one in retired:
                    _close(one.segments)
                return
            self._housekeeping.failed(_TASK, log_dir, error)
            self._retry(lambda: self._retire_all(retired))

        spawn(self._rename_all(log_dir, retired)).then(lambda _: None, failed)

    def _retire_all(self, retired: Sequence[_Retired]) -> None:
        for one in retired:
            self._add_retired(one)

    async def _rename_all(self, log_dir: str, retired: Sequence[_Retired]) -> None:
        is_noted = await self._write_log_starts(log_dir)
        for one in retired:
            self._rename(one, is_noted=is_noted)

    def _rename(self, retired: _Retired, *, is_noted: bool) -> None:
        """Rename segments now and unlink them later; retry unless the disk has failed."""

        def failed(error: Exception) -> None:
            if self._is_disk_failure(retired.log.log_dir, error):
                _close(retired.segments)
                return
            self._housekeeping.failed(_TASK, retired.log.topic_partition, error)
            self._retry(lambda: self._rename(retired, is_noted=is_noted))

        spawn(self._rename_now(retired, is_noted=is_noted)).then(lambda _: None, failed)

    async def _rename_now(self, retired: _Retired, *, is_noted: bool) -> None:
        log, segments, restarts = retired
        if log.offline:  # A failed directory is never written to again (rule R15).
            _close(segments)
            return

        def mark_deleted() -> None:
            # The directory of a closed log may belong to a new topic with the same name. After a
            # restart, the names of these segments may belong to new ones.
            if not log.closed and log.restarts == restarts:
                # Oldest first, so that the remaining segments are contiguous after a crash.
                for segment in segments:
                    segment.rename(file_names.DELETED_SUFFIX)
                    # If the log start offset is not on disk, only the order of the renames prevents
                    # a gap, and a power loss can change the order of renames that are not synced.
                    if not is_noted:
                        self._files.sync_dir(log.directory)

        await self._jobs.submit(lane_of(log.log_dir), mark_deleted)
        self._timers.call_later(
            log.config.file_delete_delay_ms, lambda: self._unlink(log, segments, restarts)
        )

    def _unlink(self, log: Log, segments: Sequence[LogSegment], restarts: int) -> None:
        """Unlink the files of `segments`; retry later with those that cannot be unlinked."""

        def unlink() -> list[tuple[LogSegment, Exception]]:
            left: list[tuple[LogSegment, Exception]] = []
            for number, segment in enumerate(segments):
                # These files are deleted with their directory, or at the next startup.
                if log.closed or log.offline or log.restarts != restarts:
                    segment.close()
                    continue
                try:
                    segment.delete_files()
                except Exception as error:
                    if _is_disk_error(error):
                        _close(segments[number:])
                        raise
                    left.append((segment, error))
            if not (left or log.closed or log.offline or log.restarts != restarts):
                # Up to the first segment's base offset, not up to the log start offset: only the
                # snapshot at the base offset contains the producers of records between the two.
                log.producer_state.snapshots.delete_before(log.segments.first.base_offset)
            return left

        def done(left: list[tuple[LogSegment, Exception]]) -> None:
            for _, error in left:
                self._housekeeping.failed(_TASK, log.topic_partition, error)
            if left:
                self._retry(lambda: self._unlink(log, [segment for segment, _ in left], restarts))

        def failed(error: Exception) -> None:
            if not self._is_disk_failure(log.log_dir, error):
                self._housekeeping.failed(_TASK, log.topic_partition, error)
                self._retry(lambda: self._unlink(log, [], restarts))  # Only the snapshots remain.

        self._jobs.submit(lane_of(log.log_dir), unlink).then(done, failed)

    # -- whole logs ---------------------------------------------------------------------------

    async def delete_logs(self, log_dir: str, logs: Sequence[Log]) -> None:
        """Durably rename the directories of a topic's closed logs, and remove them later.

        A failed rename is reported, not raised or retried.
        """
        doomed = await self._rename_logs(log_dir, logs, file_names.deleted_dir_name)
        if doomed:
            self._timers.call_later(
                logs[0].config.file_delete_delay_ms,
                lambda: self._remove_directories(log_dir, doomed),
            )

    async def keep_as_strays(self, log_dir: str, logs: Sequence[Log]) -> None:
        """Durably give the directories of closed logs ``-stray`` names; see `delete_logs`."""
        await self._rename_logs(log_dir, logs, file_names.stray_dir_name)

    async def _rename_logs(
        self, log_dir: str, logs: Sequence[Log], new_name: Callable[[TopicPartition, str], str]
    ) -> list[str]:
        """Rename the directories of `logs`, and return their new paths."""
        path_by_old = {
            # A random id, because a topic of the same name may be created and deleted again.
            log.directory: posixpath.join(
                log_dir, new_name(log.topic_partition, self._random.random_bytes(16).hex())
            )
            async for log in Slices(self._queue).over(logs)
            if not log.offline
        }
        if not path_by_old:
            return []

        def rename() -> list[tuple[str, Exception]]:
            left: list[tuple[str, Exception]] = []
            for old, new in path_by_old.items():
                try:
                    self._files.rename(old, new)
                # Not retried, because a new topic may have the same name by then. The next startup
                # removes a directory that belongs to no known topic, or gives it a -stray name.
                except Exception as error:
                    if _is_disk_error(error):
                        raise
                    left.append((old, error))
            self._files.sync_dir(log_dir)  # Otherwise, a crash could bring the topic back.
            return left

        try:
            left = await self._jobs.submit(lane_of(log_dir), rename)
        except OSError as error:
            if not self._is_disk_failure(log_dir, error):
                self._housekeeping.failed(_TASK, log_dir, error, outcome=_LEFT)
            return []
        for old, problem in left:
            self._housekeeping.failed(_TASK, old, problem, outcome=_LEFT)
            del path_by_old[old]
        return list(path_by_old.values())

    def _remove_directories(self, log_dir: str, doomed: Sequence[str]) -> None:
        """Remove ``-delete`` directories, a limited number per job."""
        for start in range(0, len(doomed), _REMOVED_PER_JOB):
            self._remove_some(log_dir, doomed[start : start + _REMOVED_PER_JOB])

    def _remove_some(self, log_dir: str, doomed: Sequence[str]) -> None:
        def remove() -> list[tuple[str, Exception]]:
            left: list[tuple[str, Exception]] = []
            for path in doomed:
                try:
                    remove_tree(self._files, path)
                except Exception as error:
                    if _is_disk_error(error):
                        raise
                    if self._files.exists(path):  # Otherwise, the operator has removed it already.
                        left.append((path, error))
            return left

        def done(left: list[tuple[str, Exception]]) -> None:
            for path, error in left:
                self._housekeeping.failed(_TASK, path, error)
            if left:
                self._retry(lambda: self._remove_some(log_dir, [path for path, _ in left]))

        def failed(error: Exception) -> None:
            if not self._is_disk_failure(log_dir, error):
                self._housekeeping.failed(_TASK, log_dir, error, outcome=_LEFT)

        self._jobs.submit(lane_of(log_dir), remove).then(done, failed)

    # -- errors -------------------------------------------------------------------------------

    def _retry(self, operation: Callable[[], None]) -> None:
        self._timers.call_later(RETRY_MS, operation)

    def _is_disk_failure(self, log_dir: str, error: Exception) -> bool:
        """Return whether `error` is a disk failure; if it is, take the directory offline."""
        if isinstance(error, OSError) and _is_disk_error(error):
            self._storage_failed(log_dir, error)
            return True
        return False


def _is_disk_error(error: Exception) -> bool:
    """Return whether `error` is a disk failure: not a full disk, a missing file or a bug."""
    return (
        isinstance(error, OSError)
        and not isinstance(error, FileNotFoundError)
        and not is_refusal(error)
    )


def _close(segments: Sequence[LogSegment]) -> None:
    """Close segments that this process will not unlink."""
    for segment in segments:
        segment.close()


def lane_of(log_dir: str) -> str:
    """Return the lane on which a log directory's jobs run sequentially."""
    return f"dir:{log_dir}"


def remove_tree(files: Files, directory: str) -> None:
    """Unlink all files in a partition's directory, then remove the directory. Runs as a job."""
    for name in files.listdir(directory):
        files.unlink(posixpath.join(directory, name))
    files.rmdir(directory)
