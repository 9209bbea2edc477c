"""Close the active segments of idle logs while too many segments are being written.

A log keeps the descriptor of its active segment from the first append on. With more logs than
descriptors, the segments written least recently are closed, and the next append opens them again. A
segment is closed only once it is durable: the kernel reports an error of a later write to the disk
to the descriptors that were open before. The other files of logs are closed by file_pool.py.

Called on the reactor's thread; log_manager.py calls `written` with the first append to a segment.
Source: PostgreSQL's virtual file descriptors (storage/file/fd.c).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Final

from plogd.log.file_names import is_metadata_dir
from plogd.log.log import Log
from plogd.ports import Ports

_STEPS_MAX: Final = 256
"""Maximum number of logs that one pass looks at, so that it does not delay an append."""
_SYNCED_AHEAD: Final = 64
"""Number of logs that are synced before their segments must be closed, because that takes time."""
_RETRY_MS: Final = 100.0
"""Time until the next pass if too many segments are still open, for example during a sync."""


class OpenSegments:
    """The logs with an active segment that is being written, least recently used first."""

    def __init__(self, ports: Ports, *, on_bug: Callable[[str, Exception], None]) -> None:
        self._descriptors = ports.files.descriptors
        self._timers = ports.timers
        self._on_bug = on_bug
        self._logs: dict[Log, int] = {}
        """For each log, its end when it was last looked at."""
        self._is_retrying = False

    def written(self, log: Log) -> None:
        """Record an append to a closed or new segment, and close others if there are too many."""
        # The metadata log has a reserved descriptor.
        if is_metadata_dir(log.directory):
            return
        self._logs.pop(log, None)
        self._logs[log] = log.log_end_offset
        if self._descriptors.excess_writing > 0:
            self.close_idle()
        elif self._descriptors.is_filling:
            self._sync_oldest()

    def _sync_oldest(self) -> None:
        """Request syncs of logs whose segments will soon be closed, unless one is due anyway."""
        for log in islice(self._logs, _SYNCED_AHEAD):
            if log.is_writable and log.has_unflushed:
                log.request_sync()

    def forget(self, log: Log) -> None:
        """Forget a closed log."""
        self._logs.pop(log, None)

    def close_idle(self) -> None:
        """Close idle segments until no more than ``plog.log.max.open.segments`` are open.

        Never raises. Segments that are not durable yet are synced first, and closed later.
        """
        try:
            self._close_idle()
        except Exception as error:  # An append has called this, and must not fail.
            self._on_bug("closing idle segments", error)

    def _close_idle(self) -> None:
        descriptors = self._descriptors
        for _ in range(min(len(self._logs), _STEPS_MAX)):
            if descriptors.excess_writing <= 0:
                return
            log = next(iter(self._logs))
            seen_end_offset = self._logs.pop(log)
            if log.closed or log.offline or not log.segments.active.is_being_written:
                continue  # `written` adds it again.
            self._logs[log] = log.log_end_offset
            # A second chance, unless appends to other logs would soon be refused.
            is_used = log.log_end_offset != seen_end_offset
            is_busy = log.is_being_written or not log.is_writable
            if is_busy or (is_used and not descriptors.is_nearly_used_up):
                continue
            if log.durable_end_offset == log.log_end_offset:
                log.segments.active.end_writing()
                del self._logs[log]
            elif log.has_unflushed:
                log.request_sync()
        self._retry()

    def _retry(self) -> None:
        if self._descriptors.excess_writing > 0 and not self._is_retrying:
            self._is_retrying = True
            self._timers.call_later(_RETRY_MS, self._run_again)

    def _run_again(self) -> None:
        self._is_retrying = False
        self.close_idle()
