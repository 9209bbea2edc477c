"""The parts of one log that are not durable yet: records without a sync, and unsealed segments.

A sync round makes the *written* segments durable, which is enough to acknowledge their records
(disk/group_commit.py). A seal also syncs a segment's indexes, so that recovery can skip the segment
(segment/sealing.py): recovery reads the *unsealed* segments. Called on the reactor's thread.

Invariant: the active segment is always unsealed.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from plogd.log.segment.log_segment import LogSegment
from plogd.ports import File


class Unsynced:
    """What a log must still sync. `end_offset` is the log end offset; all records are durable."""

    __slots__ = ("_has_new_files", "_since_ms", "_written", "requested_end_offset", "unsealed")

    def __init__(self, active: LogSegment, end_offset: int) -> None:
        self.unsealed: Sequence[LogSegment] = [active]
        """Segments that are not sealed yet, oldest first; the active segment is last."""
        self._written: list[LogSegment] = []
        """Segments with bytes that no sync round has included yet, oldest first."""
        self._has_new_files = False
        """Whether a roll has created files that no sync round has included yet."""
        self.requested_end_offset = end_offset
        """The offset below which a sync of all records has been requested."""
        self._since_ms: float | None = None
        """The monotonic time at which `is_overdue` first found records without a request."""

    # -- changes ------------------------------------------------------------------------------

    def written_to(self, active: LogSegment) -> None:
        """Record an append to the active segment."""
        if not self._written or self._written[-1] is not active:
            self._written.append(active)

    def rolled(self, active: LogSegment) -> None:
        """Record that `active` has been created as the active segment."""
        self._has_new_files = True
        self.unsealed = [*self.unsealed, active]

    def drop(self, removed: Container[LogSegment]) -> None:
        """Forget segments that are no longer part of the log."""
        self.unsealed = [segment for segment in self.unsealed if segment not in removed]
        self._written = [segment for segment in self._written if segment not in removed]

    def sealed(self, segment: LogSegment) -> bool:
        """Record that a segment is durable; return whether it is still part of the log."""
        if segment not in self.unsealed:  # Retention has deleted it during the seal.
            return False
        self.drop([segment])
        return True

    def truncated(
        self, removed: Container[LogSegment], active: LogSegment, end_offset: int
    ) -> None:
        """Record that the log ends at `end_offset` in `active`; the truncation syncs its files."""
        self.drop(removed)
        if active not in self.unsealed:
            self.unsealed = [*self.unsealed, active]
        self._written, self._has_new_files = [], False
        self.requested_end_offset = end_offset

    @property
    def first_unsealed_offset(self) -> int:
        """The base offset of the oldest segment that recovery would have to read."""
        return self.unsealed[0].base_offset

    # -- syncs --------------------------------------------------------------------------------

    @property
    def has_new_files(self) -> bool:
        """Whether the log's directory must be synced."""
        return self._has_new_files

    def requested(self, end_offset: int) -> None:
        """Record that a sync of all records below `end_offset` has been requested."""
        self.requested_end_offset, self._since_ms = end_offset, None

    def is_overdue(self, end_offset: int, now_ms: float, wait_ms: int) -> bool:
        """Return whether a record has waited for a request for `wait_ms` (``flush.ms``).

        The wait is measured from the first call to this method after the append.
        """
        if self.requested_end_offset >= end_offset:
            self._since_ms = None
            return False
        if self._since_ms is None:
            self._since_ms = now_ms
        return now_ms - self._since_ms >= wait_ms

    def take_files(self) -> list[File]:
        """Return the written segments' files for a sync round, which closes them afterward."""
        # Indexes are not synced: recovery rebuilds the indexes of segments that are not sealed.
        # The files are retained, because retention may close a segment before its sync is complete.
        files = [segment.records_file.retain() for segment in self._written]
        self._written, self._has_new_files = [], False
        return files
