"""What a start says of a log that is not as it should be: what was cut, damaged, or is gone.

Each line names the offsets, the file or directory, and where it helps what to do about it. Deciding
what becomes of a log is log_recovery.py's work, which calls this in its jobs. What is cut was never
acknowledged and is a warning; what is damaged or gone was, and is an error.
"""

from __future__ import annotations

import itertools
import posixpath
from collections.abc import Mapping, Sequence

from plog.types import TopicPartition
from plogd.log.disk.checkpoint_files import EpochEntry
from plogd.log.file_names import STRAY_SUFFIX
from plogd.log.recovery.segment_recovery import RecoveredSegment
from plogd.log.segment.log_segment import LogSegment
from plogd.ports import Report

_NAMED = 5
"""Files that one line names."""


class DamageReport:
    """Reports what loading one log has found."""

    def __init__(self, topic_partition: TopicPartition, directory: str, report: Report) -> None:
        self._name = str(topic_partition)
        self._directory = directory
        self._report = report

    def of_segment(self, segment: LogSegment, recovered: RecoveredSegment) -> None:
        """What the recovery of one segment has kept as damaged, and what it has cut."""
        path = segment.records_file.path
        for damaged in recovered.corrupt_ranges:
            self._report(
                "{topic_partition} is damaged on disk: offsets {first} to {last} cannot be read, "
                "bytes {start} to {end} of {path}; the rest is served. Consumers that come there "
                "get CORRUPT_MESSAGE and have to seek behind it, or the file be put back from a "
                "copy while the broker is stopped",
                topic_partition=self._name,
                first=damaged.base_offset,
                last=damaged.end_offset - 1,
                start=damaged.position,
                end=damaged.end_position - 1,
                path=path,
                level="error",
            )
        if recovered.truncated_bytes:
            self._report(
                "cut {nbytes} bytes of {topic_partition} at offset {offset}, in {path}: {reason}",
                nbytes=recovered.truncated_bytes,
                topic_partition=self._name,
                offset=recovered.next_offset,
                path=path,
                reason=recovered.reason,
                level="warn",
            )

    def taken_out(self, segments: Sequence[LogSegment], why: str) -> None:
        """Segments are not part of the log any more; their files are kept."""
        self._report(
            "took {count} segments out of {topic_partition}, from offset {offset} on: {why}. Their "
            "files are kept in {directory} as *{suffix}: {names}; remove them when their records "
            "are not needed",
            count=len(segments),
            topic_partition=self._name,
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

    def lost_at_end(self, first_offset: int, end_offset: int) -> None:
        """The log ends before what was durable."""
        self._lost(first_offset, end_offset, "the log goes on behind them")

    def lost_before(self, segments: Sequence[LogSegment], *, log_start_offset: int | None) -> None:
        """The log begins behind its start, if that is known: whether a file in front is gone."""
        base_offset = segments[0].base_offset
        if log_start_offset is not None and log_start_offset < base_offset:
            self._lost(log_start_offset, base_offset, "the log begins behind them")

    def lost_between(
        self, segments: Sequence[LogSegment], end_offset_by_base: Mapping[int, int]
    ) -> None:
        """Segments that do not follow each other."""
        for segment, following in itertools.pairwise(segments):
            end_offset = end_offset_by_base.get(segment.base_offset, following.base_offset)
            if end_offset < following.base_offset:
                self._lost(end_offset, following.base_offset, "readers go on behind them")

    def _lost(self, first_offset: int, end_offset: int, consequence: str) -> None:
        self._report(
            "{topic_partition} has lost offsets {first} to {last}, which were on the disk: a file "
            "in {directory} was cut short or removed; {consequence}. Put it back from a copy while "
            "the broker is stopped, if there is one",
            topic_partition=self._name,
            first=first_offset,
            last=end_offset - 1,
            directory=self._directory,
            consequence=consequence,
            level="error",
        )

    def epochs_too_high(self, entries: Sequence[EpochEntry]) -> None:
        """Batches say of themselves that they are of a leader epoch that has never been."""
        for entry in {entry.start_offset: entry for entry in entries}.values():
            self._report(
                "{topic_partition} is damaged on disk: the batch at offset {offset} in {directory} "
                "has leader epoch {epoch}, which has never been. Its records are right and served",
                topic_partition=self._name,
                offset=entry.start_offset,
                directory=self._directory,
                epoch=entry.epoch,
                level="error",
            )

    def start_beyond_end(self, log_start_offset: int, log_end_offset: int, suffix: str) -> None:
        """The checkpoint of log starts contradicts the log."""
        self._report(
            "{topic_partition} ends at {end}, but log-start-offset-checkpoint says that it begins "
            "at {start}: a file in {directory} was cut short or removed, or the checkpoint is "
            "wrong. The log begins anew at {start}; what was there is kept in files called "
            "*{suffix}. If it is the checkpoint: stop the broker, take that suffix off again, "
            "remove the files of segment {start}, and correct the checkpoint",
            topic_partition=self._name,
            start=log_start_offset,
            end=log_end_offset,
            directory=self._directory,
            suffix=suffix,
            level="error",
        )
