"""Preallocation: allocate disk space ahead of the appends to active segments.

Otherwise, the file system looks for free blocks during the appends; with requests of 1 MB, the
broker then takes a fifth more CPU time. A job therefore reserves space after the end of a segment
once the segment has 4 MiB, and again whenever half of the reserved space is used up. The size of
the file does not change. The rest of the space is released when the segment is sealed or closed,
when the disk is full, or by recovery after a crash (`LogSegment.trim`).

Source: fallocate(2), FALLOC_FL_KEEP_SIZE. Kafka's ``log.preallocate`` fills a segment with zeros
instead, which changes the size of the file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from plogd.fair_queue import FairQueue, Slices
from plogd.log.deletion import lane_of
from plogd.log.file_names import is_metadata_dir
from plogd.log.log import Log
from plogd.log.segment.log_segment import LogSegment
from plogd.ports import Ports, spawn

_FIRST_BYTES: Final = 4 << 20
"""The size of the first allocation; the active segments of most topics never reach it."""
_FREE_FACTOR: Final = 16
"""How many times the wanted space must be free."""
_RELEASE_ELEMENTS: Final = 32
"""The release of a log's space takes as long as this many elements of a slice."""


class Preallocation:
    """Reserves up to `max_bytes` at a time; 0 disables it. Called on the reactor's thread."""

    def __init__(
        self,
        ports: Ports,
        fair_queue: FairQueue,
        *,
        max_bytes: int,
        on_bug: Callable[[str, Exception], None],
    ) -> None:
        self._jobs = ports.jobs
        self._files = ports.files
        self._queue = fair_queue
        self._max_bytes = max_bytes
        self._first_bytes = min(_FIRST_BYTES, max_bytes)
        self._on_bug = on_bug

    def extend(self, log: Log, segment: LogSegment) -> None:
        """Reserve space for the next appends to `segment`, the active segment of `log`.

        If this fails, the segment grows without reserved space for as many bytes.
        """
        size_bytes = segment.size_bytes
        # The metadata log has reserved its own space (disk/reserved_space.py), and keeps it.
        is_wanted = self._max_bytes and not is_metadata_dir(log.directory)
        segment.preallocate_at = self._first_bytes if is_wanted else math.inf
        if size_bytes < segment.preallocate_at:
            return
        segment.preallocate_at = math.inf  # Until the job is done.
        # Never more than the segment has, so that a thousand small active segments do not reserve
        # a thousand times `max_bytes`.
        ahead_bytes = min(self._max_bytes, size_bytes, log.config.segment_bytes - size_bytes)
        if ahead_bytes <= 0:
            return
        try:
            # The file is being written, so it is open, and this does not wait.
            file = segment.records_file.retain()
        except OSError:  # Unless a job on a slow disk has just failed.
            return

        def reserve() -> bool:
            # The last free space belongs to appends: reserved space would be lost to other logs.
            if self._files.space(log.log_dir).usable_bytes < _FREE_FACTOR * ahead_bytes:
                return False
            return file.reserve(ahead_bytes)

        def done(is_reserved: bool) -> None:
            file.close()
            # Half of the space is left when the next job starts.
            used_bytes = ahead_bytes // 2 if is_reserved else ahead_bytes
            segment.preallocate_at = size_bytes + used_bytes

        def failed(_: Exception) -> None:
            # Appends report a disk that has failed.
            file.close()

        self._jobs.submit(lane_of(log.log_dir), reserve).then(done, failed)

    def release(self, logs: Sequence[Log]) -> None:
        """Release the space that these logs have reserved, because their disk is full."""
        what = "releasing reserved disk space"
        spawn(self._release(logs)).then(lambda _: None, lambda error: self._on_bug(what, error))

    async def _release(self, logs: Sequence[Log]) -> None:
        slices = Slices(self._queue)
        async for log in slices.over(logs):
            segment = log.segments.active
            # Other segments have not reserved space, and may have to be opened. On a slow disk,
            # this would block the reactor, and a job may be appending to the segment.
            is_open = segment.size_bytes >= self._first_bytes and segment.records_file.is_open
            if is_open and log.is_written_directly:
                # Reserved again later if there is space.
                segment.preallocate_at = segment.size_bytes + self._first_bytes
                segment.trim()
                slices.spend(_RELEASE_ELEMENTS)
