"""Rename the segments that recovery rejects; they are never deleted.

A segment is rejected if records before it are missing and nothing proves that the segment was
durable, or if a checkpoint contradicts the segment. Its files get ``.stray`` names, which startup,
retention and Kafka ignore. log_recovery.py selects the segments to reject, and damage_report.py
reports them.
"""

from __future__ import annotations

import itertools
import posixpath

from plogd.log.file_names import SEGMENT_SUFFIXES, segment_path, stray_state
from plogd.log.segment.log_segment import LogSegment
from plogd.ports import Files


def mark_stray(files: Files, segment: LogSegment) -> None:
    """Close `segment` and give its files unique ``.stray`` names. The caller syncs the directory.

    Runs as a job. Raises OSError.
    """
    directory = posixpath.dirname(segment.records_file.path)
    # An earlier recovery may have rejected a segment with the same base offset.
    for number in itertools.count(1):
        state = stray_state(number)
        paths = (
            segment_path(directory, segment.base_offset, suffix, state)
            for suffix in SEGMENT_SUFFIXES
        )
        if not any(map(files.exists, paths)):
            break
    segment.rename(state)
    segment.close()
