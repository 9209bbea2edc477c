"""Getting rid of segments and partition directories: renamed now, unlinked later.

A file is given a ``.deleted`` name (a directory a ``-delete`` one) at once, so that the next start
knows it is gone, and is unlinked after ``file.delete.delay.ms``, when readers have let go of it.
All of it is done in jobs on the log directory's lane. What is deletable is decided by retention.py
and the controller.

Source: Kafka 3.9 LocalLog.deleteSegmentFiles, LogManager.asyncDelete.
Invariant: a crash never leaves a hole in a log. The log's start offset is on disk before the first
file below it gets its new name; where a full disk has no room for that, names change one by one.
"""

from __future__ import annotations

import posixpath
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from plogd.log import names
from plogd.log.io_errors import is_refusal
from plogd.log.log import Log
from plogd.log.log_segment import LogSegment
from plogd.ports import Files, Jobs, Random, Report, Timers, spawn

_REMOVED_AT_ONCE = 50
"""Directories that one job removes."""
RETRY_MS = 60_000
"""How long a rename waits that was refused for want of room."""


class Deletions:
    """Renames and unlinks, for all logs of a broker; called on the reactor's thread.

    `write_log_starts(log_dir)` makes the log start offsets of a log directory durable, if it can;
    `storage_failed(log_dir, error)` hears what the disk could not do.
    """

    def __init__(
        self,
        *,
        files: Files,
        jobs: Jobs,
        timers: Timers,
        random: Random,
        report: Report,
        write_log_starts: Callable[[str], Awaitable[bool]],
        storage_failed: Callable[[str, OSError], None],
    ) -> None:
        self._files = files
        self._jobs = jobs
        self._timers = timers
        self._random = random
        self._report = report
        self._write_log_starts = write_log_starts
        self._storage_failed = storage_failed
        self._retired: dict[str, list[tuple[Log, Sequence[LogSegment]]]] = {}
        """Whose new log start is not written yet, by log directory."""

    def retire(self, log: Log, segments: Sequence[LogSegment]) -> None:
        """Rename, and later unlink, segments that `log` does not hold any more.

        What is retired in one turn shares one writing of the log starts: a look at retention may
        find something in each of thousands of logs.
        """
        if log.log_dir not in self._retired:
            self._retired[log.log_dir] = []
            self._timers.call_later(0, lambda: self._rename_retired(log.log_dir))
        self._retired[log.log_dir].append((log, segments))

    def _rename_retired(self, log_dir: str) -> None:
        retired = self._retired.pop(log_dir)

        def failed(error: Exception) -> None:
            for _, segments in retired:
                _close(segments)
            self._refused(log_dir, error)

        spawn(self._rename_all(log_dir, retired)).then(lambda _: None, failed)

    async def _rename_all(
        self, log_dir: str, retired: Sequence[tuple[Log, Sequence[LogSegment]]]
    ) -> None:
        is_noted = await self._write_log_starts(log_dir)
        for log, segments in retired:
            self._rename(log, segments, is_noted=is_noted)

    def _rename(self, log: Log, segments: Sequence[LogSegment], *, is_noted: bool) -> None:
        """Rename now and unlink later; what the disk has no room for is tried again later."""

        def failed(error: Exception) -> None:
            self._refused(log.log_dir, error)
            if isinstance(error, OSError) and is_refusal(error):
                self._timers.call_later(
                    RETRY_MS, lambda: self._rename(log, segments, is_noted=is_noted)
                )
            else:
                _close(segments)

        spawn(self._rename_now(log, segments, is_noted=is_noted)).then(lambda _: None, failed)

    async def _rename_now(
        self, log: Log, segments: Sequence[LogSegment], *, is_noted: bool
    ) -> None:
        if log.offline:
            _close(segments)
            return

        def mark_deleted() -> None:
            if not log.closed:
                for segment in segments:  # Oldest first: a crash leaves the end of the log whole.
                    segment.rename(names.DELETED_SUFFIX)
                    if not is_noted:
                        self._files.sync_dir(log.directory)

        await self._jobs.submit(lane_of(log.log_dir), mark_deleted)
        self._timers.call_later(
            log.config.file_delete_delay_ms, lambda: self._unlink(log, segments)
        )

    def _unlink(self, log: Log, segments: Sequence[LogSegment]) -> None:
        def unlink() -> None:
            for number, segment in enumerate(segments):
                if log.closed or log.offline:  # The directory goes, or the next start sees to it.
                    segment.close()
                    continue
                try:
                    segment.delete_files()
                except OSError:
                    _close(segments[number + 1 :])
                    raise
            if not (log.closed or log.offline):
                # Not the log's start: of what lies before it in its segment nothing else tells.
                log.producer_state.delete_snapshots_before(log.segments.first.base_offset)

        self._jobs.submit(lane_of(log.log_dir), unlink).then(
            lambda _: None, lambda error: self._refused(log.log_dir, error)
        )

    async def delete_logs(self, log_dir: str, logs: Sequence[Log]) -> None:
        """Take the directories of a topic's closed logs out of sight; done when that is durable.

        What a failed disk keeps is no error: the next start finds a directory of no known topic.
        """
        doomed_by_path = {
            log.directory: posixpath.join(
                log_dir,
                names.deleted_dir_name(log.topic_partition, self._random.random_bytes(16).hex()),
            )
            for log in logs
            if not log.offline
        }
        if not doomed_by_path:
            return

        def rename() -> None:
            for path, doomed in doomed_by_path.items():
                self._files.rename(path, doomed)
            self._files.sync_dir(log_dir)

        try:
            await self._jobs.submit(lane_of(log_dir), rename)
        except OSError as error:
            self._refused(log_dir, error)
            return
        self._timers.call_later(
            logs[0].config.file_delete_delay_ms,
            lambda: self._remove_directories(log_dir, list(doomed_by_path.values())),
        )

    def _remove_directories(self, log_dir: str, doomed: Sequence[str]) -> None:
        """Unlink ``-delete`` directories with all they hold, a few in a job: others wait, too."""

        def remove(paths: Sequence[str]) -> None:
            for path in paths:
                remove_tree(self._files, path)

        for start in range(0, len(doomed), _REMOVED_AT_ONCE):
            job = partial(remove, doomed[start : start + _REMOVED_AT_ONCE])
            self._jobs.submit(lane_of(log_dir), job).then(
                lambda _: None, lambda error: self._refused(log_dir, error)
            )

    def _refused(self, log_dir: str, error: Exception) -> None:
        if isinstance(error, OSError) and not is_refusal(error):
            self._storage_failed(log_dir, error)
        else:
            self._report(
                "deletion in {log_dir} failed: {error!r}",
                log_dir=log_dir,
                error=error,
                level="warn",
            )


def _close(segments: Sequence[LogSegment]) -> None:
    """Nobody will unlink them in this process: let go of their files."""
    for segment in segments:
        segment.close()


def lane_of(log_dir: str) -> str:
    """The lane on which a log directory's jobs run, one after the other."""
    return f"dir:{log_dir}"


def remove_tree(files: Files, directory: str) -> None:
    """A job: unlink everything in a partition's directory, and the directory."""
    for name in files.listdir(directory):
        files.unlink(posixpath.join(directory, name))
    files.rmdir(directory)
