"""Sync and close all logs of a broker when it stops, and mark each log directory as clean.

The next startup skips the recovery of a directory that is marked as clean. A directory is marked
only if all of its logs were loaded and could be closed; no background work may be left in it.
clean_stop.py makes a single log durable.

Called on the reactor's thread; logs are closed by jobs. Source: Kafka 3.9 LogManager.shutdown.
"""

from __future__ import annotations

from collections.abc import Collection

from plog.errors import PlogError
from plogd.log.compaction.log_cleaner import LogCleaner
from plogd.log.disk.log_dir import LogDir
from plogd.log.disk.log_dirs import LogDirs
from plogd.log.disk.offset_checkpoints import OffsetCheckpoints
from plogd.log.log import Log
from plogd.log.recovery.log_loader import LogLoader
from plogd.log.segment.sealing import Sealing
from plogd.log.truncation import Truncations
from plogd.ports import Ports, gather


class Shutdown:
    """Closes the logs of a broker; `closed_logs` counts them."""

    def __init__(
        self,
        dirs: LogDirs,
        ports: Ports,
        *,
        loading: LogLoader,
        sealing: Sealing,
        truncations: Truncations,
        cleaner: LogCleaner,
        checkpoints: OffsetCheckpoints,
    ) -> None:
        self._dirs = dirs
        self._jobs = ports.jobs
        self._report = ports.report
        self._loading = loading
        self._sealing = sealing
        self._truncations = truncations
        self._cleaner = cleaner
        self._checkpoints = checkpoints
        self.closed_logs = 0
        """Number of logs closed so far."""

    async def run(self, logs: Collection[Log], *, is_loaded: bool) -> None:
        """Close `logs` and release all directories; `is_loaded` if no log is missing."""
        if not is_loaded:
            # Jobs must not use a directory after its lock has been released.
            await self._loading.end_jobs()
        await self._cleaner.stop()
        for rounds in self._dirs.sync_rounds:
            await rounds.idle()  # A pending write to a slow disk requests a sync when it is done.
        for log in logs:
            if log.has_unflushed and not log.offline:
                log.request_sync()
        for rounds in self._dirs.sync_rounds:
            await rounds.idle()
        for log_dir in self._dirs.online:
            await self._end_background_work(log_dir)
            if not log_dir.offline:
                if is_loaded or not self._loading.progress.is_stopped:
                    await self._close_logs(log_dir, logs, is_loaded=is_loaded)
                else:  # Nothing was appended, and the next startup recovers all logs.
                    text = "stopped before the logs in {log_dir} were loaded"
                    self._report(text, log_dir=log_dir.path)
                await self._jobs.submit(log_dir.read_lane, _nothing)  # Wait for cold reads.
        for log_dir in self._dirs:
            log_dir.release()

    async def _end_background_work(self, log_dir: LogDir) -> None:
        # Wait for all seals: if one fails, the directory must not be marked as clean.
        await self._truncations.idle(log_dir.path)
        await self._jobs.submit(log_dir.lane, _nothing)
        while self._sealing.is_running(log_dir.path):
            await self._jobs.submit(log_dir.lane, _nothing)

    async def _close_logs(self, log_dir: LogDir, logs: Collection[Log], *, is_loaded: bool) -> None:
        """Close all logs in a directory, and mark it as clean if all of them could be closed."""
        # On num.recovery.threads.per.data.dir lanes, as in Kafka.
        closings = [
            self._jobs.submit(self._loading.lane(log_dir), log.close_durably).map(self._closed)
            for log in logs
            if log.log_dir == log_dir.path
        ]
        try:
            await gather(closings)
            if is_loaded:
                await self._checkpoints.write_final(log_dir)
                return
            reason = "not all logs were loaded"
        except (OSError, PlogError) as error:
            reason = str(error)
        except Exception as error:  # A bug keeps only this directory from being marked as clean.
            reason = repr(error)
        # If no log was loaded, the broker refused to start and has reported the reason.
        if logs or self._loading.has_begun:
            text = "cannot mark {log_dir} as cleanly shut down: {reason}"
            self._report(text, log_dir=log_dir.path, reason=reason, level="warn")

    def _closed(self, _: None) -> None:
        self.closed_logs += 1


def _nothing() -> None:
    """Do nothing; the job completes after all earlier jobs of its lane."""
