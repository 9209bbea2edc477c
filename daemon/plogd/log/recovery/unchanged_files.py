"""Find the segments whose files have not changed since the last clean stop, or since recovery.

Startup trusts these segments, and checks others: while no broker was running, an operator may have
removed or truncated a file. The times of the last change are compared with that of the clean
shutdown file, which the broker has written last. log_recovery.py calls this module in its job.

A change that sets the clock back, or bit rot, is not found here. A later read reports the damage.
"""

from __future__ import annotations

from plogd.log.recovery.load_request import LoadRequest
from plogd.log.segment.log_segment import LogSegment
from plogd.ports import Files


class UnchangedFiles:
    """The segments of one log that are as the last clean stop has left them."""

    def __init__(self, files: Files, request: LoadRequest) -> None:
        """Raise OSError. Called before startup changes a file in the directory."""
        self._files = files
        self._is_trusted = request.was_recovered
        self._since_ms = request.clean_since_ms if request.clean else None
        # Names are added or removed in the directory.
        self._is_directory_unchanged = self._is_older(request.directory)

    def includes(self, segment: LogSegment) -> bool:
        """Return whether the segment is the same as before, and so are those next to it."""
        if self._is_trusted:
            return True
        return self._is_directory_unchanged and self._is_older(segment.records_file.path)

    def _is_older(self, path: str) -> bool:
        # Not if the times are equal: the file may have changed within the same millisecond.
        return self._since_ms is not None and self._files.modified_ms(path) < self._since_ms
