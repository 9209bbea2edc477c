"""cleaner-offset-checkpoint: up to which offset each log of a log directory is compacted.

The log cleaner writes an entry when the first compaction of a log begins, and after each
compaction. From the first entry on, a startup knows that the log may have gaps between its offsets.

Called on the reactor's thread. Source: Kafka 3.9 LogCleanerManager.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from plog.types import TopicPartition
from plogd.log import file_names
from plogd.log.disk.log_dirs import LogDirs
from plogd.log.io_errors import is_refusal
from plogd.log.log import Log
from plogd.ports import Jobs


class CleanerCheckpoints:
    """The checkpoints of all log directories.

    `storage_failed(log_dir, error)` takes a log directory offline.
    """

    def __init__(
        self, dirs: LogDirs, jobs: Jobs, storage_failed: Callable[[str, OSError], None]
    ) -> None:
        self._dirs = dirs
        self._jobs = jobs
        self._storage_failed = storage_failed

    def offset_of(self, log: Log) -> int | None:
        """Return the end of the compacted part of a log; None if it has never been compacted."""
        return self._dirs[log.log_dir].cleaner_offsets.get(log.topic_partition)

    async def write(self, log: Log, offset: int) -> None:
        """Durably note that `log` is compacted up to `offset`. Raises OSError."""
        log_dir = self._dirs[log.log_dir]

        def write() -> None:
            # The directory of a closed log may belong to a new topic with the same name.
            if log.closed:
                return
            offsets: Mapping[TopicPartition, int] = {
                **log_dir.cleaner_offsets,
                log.topic_partition: offset,
            }
            log_dir.write_offsets(file_names.CLEANER_OFFSET_CHECKPOINT, offsets)

        try:
            await self._jobs.submit(log_dir.lane, write)
        except OSError as error:
            if not is_refusal(error):
                self._storage_failed(log.log_dir, error)
            raise

    async def remove(self, path: str, deleted: Collection[TopicPartition]) -> None:
        """Remove the entries of deleted logs in the log directory `path`, if possible.

        Otherwise, the creation of a log with the same name does it.
        """
        log_dir = self._dirs[path]

        def write() -> None:
            offsets = log_dir.cleaner_offsets
            kept = {key: offset for key, offset in offsets.items() if key not in deleted}
            if len(kept) != len(offsets):
                log_dir.write_offsets(file_names.CLEANER_OFFSET_CHECKPOINT, kept)

        if not any(key in log_dir.cleaner_offsets for key in deleted):
            return
        try:
            await self._jobs.submit(log_dir.lane, write)
        except OSError as error:
            if not is_refusal(error):
                self._storage_failed(path, error)
