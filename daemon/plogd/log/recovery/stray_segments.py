"""Segments that recovery rejects: renamed and never deleted.

A segment is rejected when the records before it are missing and nothing proves that it was durable,
or when a checkpoint contradicts it. Its files get a ``.stray`` name, which a start, retention and
Kafka ignore. Deciding is log_recovery.py's work, reporting damage_report.py's.
"""

from __future__ import annotations

import itertools
import posixpath

from plogd.log.file_names import SEGMENT_SUFFIXES, segment_path, stray_state
from plogd.log.segment.log_segment import LogSegment
from plogd.ports import Files


def take_out(files: Files, segment: LogSegment) -> None:
    """A job: close `segment` and give its files a ``.stray`` name of its own. Raises OSError.

    The caller syncs the directory.
    """
    directory = posixpath.dirname(segment.records_file.path)
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
