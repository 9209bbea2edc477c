"""Write the three offset checkpoints in a log directory.

    log-start-offset-checkpoint        records below this offset have been deleted
    replication-offset-checkpoint      the high watermark, limited to the durable end
    recovery-point-offset-checkpoint   recovery skips records below this offset

Each file contains an entry for each log in the directory. A job on the directory's lane writes the
file when tasks.py, deletion.py or the broker's shutdown requests it. checkpoint_files.py defines
the format, and log_dir.py reads the files.

Source: Kafka 3.9 LogManager.checkpointRecoveryOffsetsInDir,
ReplicaManager.checkpointHighWatermarks. Invariants: an offset is written only once the data on disk
matches it; a failed directory is never written to again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from plog.types import TopicPartition
from plogd.log import file_names
from plogd.log.disk.log_dir import LogDir
from plogd.log.housekeeping import Housekeeping
from plogd.log.io_errors import is_refusal
from plogd.log.log import Log
from plogd.ports import Jobs, Report, gather, spawn

_TASK = "checkpoint"

_OFFSET_OF: Mapping[str, Callable[[Log], int]] = {
    file_names.LOG_START_OFFSET_CHECKPOINT: lambda log: log.log_start_offset,
    # If flush.messages is not 1, the high watermark may be above the durable end (rule R1).
    file_names.HIGH_WATERMARK_CHECKPOINT: lambda log: min(
        log.high_watermark, log.durable_end_offset
    ),
    file_names.RECOVERY_POINT_CHECKPOINT: lambda log: log.recovery_point,
}


class OffsetCheckpoints:
    """The checkpoints in all log directories. Called on the reactor's thread.

    `logs_in(log_dir)` returns the logs in a directory.
    """

    def __init__(
        self,
        *,
        jobs: Jobs,
        report: Report,
        housekeeping: Housekeeping,
        logs_in: Callable[[str], Sequence[Log]],
        storage_failed: Callable[[str, OSError], None],
    ) -> None:
        self._jobs = jobs
        self._report = report
        self._housekeeping = housekeeping
        self._logs_in = logs_in
        self._storage_failed = storage_failed

    async def write_in_each(self, log_dirs: Sequence[LogDir], name: str) -> None:
        """Write the checkpoint called `name` in each of `log_dirs`."""
        # Concurrently, so that a hung disk does not delay the checkpoints on other disks.
        await gather([spawn(self.write(log_dir, name)) for log_dir in log_dirs])

    async def write(self, log_dir: LogDir, name: str, *, always: bool = False) -> bool:
        """Write one checkpoint if it has changed; return whether the file is up to date.

        With `always`, the checkpoint is written even if it seems unchanged, because an earlier
        write with other offsets may still be waiting.

        On a full disk, or after a bug, the old file remains. Any other OSError takes the directory
        offline.
        """
        if log_dir.offline:
            return False
        try:
            offsets = self._offsets(log_dir, name)
            # Otherwise, an idle broker would sync each file every few seconds.
            if not always and log_dir.has_written(name, offsets):
                return True
            starts = [(log, log.log_start_offset) for log in self._logs_in(log_dir.path)]
            await self._jobs.submit(log_dir.lane, lambda: log_dir.write_offsets(name, offsets))
            if name == file_names.LOG_START_OFFSET_CHECKPOINT:
                for log, start_offset in starts:
                    log.leader_epochs.log_start_is_durable(start_offset)
        except OSError as error:
            # The directory stays online, because the offsets in the old file are still valid.
            if is_refusal(error):
                self._report(
                    "cannot write {name} in {log_dir}: {error}",
                    name=name,
                    log_dir=log_dir.path,
                    error=str(error),
                    level="warn",
                )
            else:
                self._storage_failed(log_dir.path, error)
            return False
        except Exception as error:
            self._housekeeping.failed(_TASK, f"{name} in {log_dir.path}", error)
            return False
        return True

    async def write_final(self, log_dir: LogDir) -> None:
        """Write all checkpoints and the clean shutdown file, then release the directory.

        All logs in it must be durable and closed. Raises OSError.
        """
        # Collected now and not in the job, because only the reactor's thread may use the logs.
        offsets_by_name = {name: self._offsets(log_dir, name) for name in _OFFSET_OF}

        def finish() -> None:
            for name, offsets in offsets_by_name.items():
                log_dir.write_offsets(name, offsets)
            log_dir.close(clean=True)  # Last, so that a crash before it leads to recovery.

        await self._jobs.submit(log_dir.lane, finish)

    def _offsets(self, log_dir: LogDir, name: str) -> dict[TopicPartition, int]:
        offset_of = _OFFSET_OF[name]
        return {log.topic_partition: offset_of(log) for log in self._logs_in(log_dir.path)}
