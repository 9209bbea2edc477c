"""A single segment in a directory of its own."""

from __future__ import annotations

from plog.records.batch import iter_batches
from plogd.log import file_names
from plogd.log.segment.log_segment import LogSegment
from plogd.topic_config import TopicConfig
from tests.helpers.log.log_data import SMALL
from tests.helpers.sim.sim_files import SimFiles

BASE = 1000
INDEX = f"/log/{file_names.segment_file_name(BASE, '.index')}"
TIME_INDEX = f"/log/{file_names.segment_file_name(BASE, '.timeindex')}"


def create_segment(files: SimFiles, config: TopicConfig = SMALL) -> LogSegment:
    """Return a new segment."""
    files.mkdir("/log")
    return LogSegment.create(files, "/log", BASE, config)


def open_segment(files: SimFiles, config: TopicConfig = SMALL) -> LogSegment:
    """Return the existing segment, opened again."""
    return LogSegment(files, "/log", BASE, config)


def read_offsets(
    segment: LogSegment, offset: int, max_bytes: int = 1 << 30, **how: int
) -> list[int]:
    """Return the base offsets of the whole batches in a read."""
    region = segment.read(
        offset,
        max_bytes,
        max_position=how.get("max_position", segment.size_bytes),
        at_least_one=bool(how.get("at_least_one", True)),
    )
    assert region is not None
    data = region.read()
    region.close()
    return [header.base_offset for _, header in iter_batches(data)]
