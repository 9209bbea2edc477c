"""Report damage found when a log is loaded: truncated, damaged and missing records.

Each line contains the offsets, the file or directory and, where possible, the remedy.
log_recovery.py decides how to handle the damage, and reports it from its jobs.
"""

from __future__ import annotations

import itertools
import posixpath
from collections.abc import Callable, Mapping, Sequence

from plog.types import TopicPartition
from plogd.log.disk.checkpoint_files import EpochEntry
from plogd.log.file_names import STRAY_SUFFIX
from plogd.log.log_loss import LogLoss
from plogd.log.recovery.segment_recovery import RecoveredSegment
from plogd.log.segment.log_segment import LogSegment
from plogd.ports import Report

_NAMED = 5
"""Maximum number of file names in one line."""


class DamageReport:
    """Reports the damage found in one log; `on_loss` gets each loss of durable records."""

    def __init__(
        self,
        topic_partition: TopicPartition,
        directory: str,
        report: Report,
        on_loss: Callable[[LogLoss], None] = lambda loss: None,
    ) -> None:
        self._topic_partition = topic_partition
        self._directory = directory
        self._report = report
        self._on_loss = on_loss

    def of_segment(self, segment: LogSegment, recovered: RecoveredSegment) -> None:
        """Report the damage that recovery has kept in a segment, and the truncated bytes."""
        path = segment.records_file.path
        # An error, as for missing records, because these records may have been acknowledged.
        for damaged in recovered.corrupt_ranges:
            self._on_loss(LogLoss(first_offset=damaged.base_offset, lacks_end=False))
            self._report(
                "{topic_partition} is damaged on disk: cannot read offsets {first} to {last},"
                " bytes {start} to {end} of {path}; other records are served, but consumers"
                " receive CORRUPT_MESSAGE at these offsets; seek past them, or stop the broker"
                " and restore the file from a backup",
                topic_partition=self._topic_partition,
                first=damaged.base_offset,
                # Inclusive, because the line names the first and the last offset.
                last=damaged.end_offset - 1,
                start=damaged.position,
                end=damaged.end_position - 1,
                path=path,
                level="error",
            )
        # Only a warning, because these records were never acknowledged.
        if recovered.truncated_bytes:
            self._report(
                "truncated {nbytes} bytes from {topic_partition} at offset {offset}, in {path}:"
                " {reason}",
                nbytes=recovered.truncated_bytes,
                topic_partition=self._topic_partition,
                offset=recovered.next_offset,
                path=path,
                reason=recovered.reason,
                level="warn",
            )

    def rejected(self, segments: Sequence[LogSegment], why: str) -> None:
        """Report segments that were removed from the log; their files are kept."""
        self._report(
            "removed {count} segments from {topic_partition}, starting at offset {offset}: {why};"
            " their files are kept in {directory} as *{suffix}: {names}; delete the files if you"
            " do not need their records",
            count=len(segments),
            topic_partition=self._topic_partition,
            offset=segments[0].base_offset,
            why=why,
            directory=self._directory,
            suffix=STRAY_SUFFIX,
            names=", ".join(
                posixpath.basename(segment.records_file.path) for segment in segments[:_NAMED]
            )
            + (", ..." if segments[_NAMED:] else ""),
            level="error",
        )

    def lost_at_end(self, first_offset: int, end_offset: int, *, continues: bool) -> None:
        """Report that the log ends before its durable end; it may continue after the loss."""
        self._on_loss(LogLoss(first_offset=first_offset, lacks_end=True))
        consequence = "the log continues after them"
        if not continues:
            consequence = "this replica does not lead before it has copied them from another one"
        self._lost(first_offset, end_offset, consequence)

    def lost_before(self, segments: Sequence[LogSegment], *, log_start_offset: int | None) -> None:
        """Report that the log begins after its log start offset, if the start offset is known."""
        base_offset = segments[0].base_offset
        if log_start_offset is not None and log_start_offset < base_offset:
            self._on_loss(LogLoss(first_offset=log_start_offset, lacks_end=False))
            self._lost(log_start_offset, base_offset, "the log starts after them")

    def lost_between(
        self, segments: Sequence[LogSegment], end_offset_by_base: Mapping[int, int]
    ) -> None:
        """Report gaps between segments."""
        for segment, following in itertools.pairwise(segments):
            end_offset = end_offset_by_base.get(segment.base_offset, following.base_offset)
            if end_offset < following.base_offset:
                self._on_loss(LogLoss(first_offset=end_offset, lacks_end=False))
                self._lost(end_offset, following.base_offset, "consumers continue after them")

    def _lost(self, first_offset: int, end_offset: int, consequence: str) -> None:
        self._report(
            "{topic_partition} has lost offsets {first} to {last}, which were durable: a file in "
            "{directory} was truncated or removed; {consequence}; to recover the records, stop "
            "the broker and restore the file from a backup",
            topic_partition=self._topic_partition,
            first=first_offset,
            last=end_offset - 1,
            directory=self._directory,
            consequence=consequence,
            level="error",
        )

    def epochs_too_high(self, entries: Sequence[EpochEntry]) -> None:
        """Report batches with a leader epoch that never existed."""
        # One line per batch, even if several entries have the batch's start offset.
        for entry in {entry.start_offset: entry for entry in entries}.values():
            self._report(
                "{topic_partition} is damaged on disk: the batch at offset {offset} in {directory} "
                "has leader epoch {epoch}, which never existed; its records are valid and are "
                "still served",
                topic_partition=self._topic_partition,
                offset=entry.start_offset,
                directory=self._directory,
                epoch=entry.epoch,
                level="error",
            )

    def start_beyond_end(self, log_start_offset: int, log_end_offset: int, suffix: str) -> None:
        """Report that the log start offset checkpoint contradicts the log."""
        self._on_loss(LogLoss(first_offset=log_start_offset, lacks_end=True))
        self._report(
            "{topic_partition} ends at {end}, but log-start-offset-checkpoint says that it starts "
            "at {start}: a file in {directory} was truncated or removed, or the checkpoint is "
            "wrong; the log is now empty and starts at {start}, and its old files are kept as "
            "*{suffix}; if the checkpoint is wrong, stop the broker, remove the suffix from the "
            "names, remove the files of segment {start}, and correct the checkpoint",
            topic_partition=self._topic_partition,
            start=log_start_offset,
            end=log_end_offset,
            directory=self._directory,
            suffix=suffix,
            level="error",
        )
