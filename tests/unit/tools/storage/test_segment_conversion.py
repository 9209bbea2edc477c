"""storage/segment_conversion.py: converted segments, and crashes at every step."""

from __future__ import annotations

import random

import pytest

from plog.records.codec import Record
from plog.records.reader import iter_records
from plogd.log.file_names import segment_path
from plogd.log.segment.log_segment import LogSegment
from plogd.log.segment.sanity_check import sanity_check
from plogd.tools.storage.log_inspection import walk_segment
from plogd.tools.storage.segment_conversion import NotConvertible, convert_segment, replace_segment
from plogd.topic_config import TopicConfig
from tests.corpus import legacy
from tests.helpers.log.log_data import next_offset
from tests.helpers.programs.kafka_data import batch
from tests.helpers.sim.sim_files import Operation, SimCrash, SimFiles
from tests.sim.crash_points import clone
from tests.unit.records.test_legacy import message

OLD = legacy.load("magic-1-gzip")
BASE = legacy.BASE_OFFSET
RECORDS = legacy.records(1)
SEEDS = range(8)


def _site(data: bytes) -> SimFiles:
    files = SimFiles(["/log", "/new"])
    for suffix, content in ((".log", data), (".index", b"old"), (".timeindex", b"old")):
        file = files.open_append(segment_path("/log", BASE, suffix))
        file.append(content)
        file.sync()
        file.close()
    files.sync_dir("/log")
    return files


def _ignore_progress(count: int) -> None:
    """Ignore progress."""


def _records(files: SimFiles, directory: str) -> list[Record]:
    return list(iter_records(files.read_file(segment_path(directory, BASE, ".log"))))


def test_converted_segment_has_records_and_indexes() -> None:
    files = _site(OLD)
    progress: list[int] = []
    size = convert_segment(files, "/log", "/new", BASE, may_be_torn=False, progress=progress.append)
    assert _records(files, "/new") == RECORDS
    assert sum(progress) == len(OLD)
    assert size == len(files.read_file(segment_path("/new", BASE, ".log")))
    segment = LogSegment(files, "/new", BASE, TopicConfig())
    sanity_check(segment)
    assert segment.max_timestamp == max(record.timestamp for record in RECORDS)
    assert next_offset(segment) == BASE + len(RECORDS)


def test_batches_of_magic_2_are_copied_unchanged() -> None:
    new = batch([b"x", b"y"], BASE + 5, epoch=8)
    files = _site(OLD + new + message(0, BASE + 9, value=b"z"))
    convert_segment(files, "/log", "/new", BASE, may_be_torn=False, progress=_ignore_progress)
    data = files.read_file(segment_path("/new", BASE, ".log"))
    assert new in data
    assert [record.offset - BASE for record in iter_records(data)] == [0, 1, 2, 3, 4, 5, 6, 9]


@pytest.mark.parametrize("tail", [b"\0" * 100, message(0, BASE + 5)[:-1], b"short"])
def test_damaged_end_is_truncated_only_when_segment_may_be_torn(
    tail: bytes,
) -> None:
    files = _site(OLD + tail)
    convert_segment(files, "/log", "/new", BASE, may_be_torn=True, progress=_ignore_progress)
    assert _records(files, "/new") == RECORDS
    with pytest.raises(NotConvertible, match=r"/log/00000000000000001000.log: .*start Kafka"):
        convert_segment(files, "/log", "/new", BASE, may_be_torn=False, progress=_ignore_progress)


def test_error_names_position_of_corrupt_message() -> None:
    damaged = bytearray(OLD + message(0, BASE + 5, value=b"x"))
    damaged[-1] ^= 1
    files = _site(bytes(damaged))
    with pytest.raises(NotConvertible, match=f"byte {len(OLD)}, offset {BASE + 5}"):
        convert_segment(files, "/log", "/new", BASE, may_be_torn=False, progress=_ignore_progress)
    convert_segment(files, "/log", "/new", BASE, may_be_torn=True, progress=_ignore_progress)
    assert _records(files, "/new") == RECORDS


def test_offsets_too_far_from_base_offset_are_rejected() -> None:
    files = _site(OLD + message(0, BASE + 2**31))
    with pytest.raises(NotConvertible, match="too far from the segment's base"):
        convert_segment(files, "/log", "/new", BASE, may_be_torn=False, progress=_ignore_progress)


def test_segment_is_replaced_in_place() -> None:
    files = _site(OLD)
    replace_segment(files, "/log", BASE, may_be_torn=False, progress=_ignore_progress)
    assert files.listdir("/log") == [f"{BASE:020d}{x}" for x in (".index", ".log", ".timeindex")]
    assert {found.magic for found in walk_segment(files, "/log", BASE)} == {2}
    assert _records(files, "/log") == RECORDS


def test_failed_conversion_keeps_segment_and_leaves_no_files() -> None:
    files = _site(OLD + b"garbage" * 10)
    before = files.listdir("/log")
    with pytest.raises(NotConvertible):
        replace_segment(files, "/log", BASE, may_be_torn=False, progress=_ignore_progress)
    assert files.listdir("/log") == before
    assert files.read_file(segment_path("/log", BASE, ".log")) == OLD + b"garbage" * 10


def test_crash_at_any_step_leaves_old_or_new_segment() -> None:
    """No index of the other segment remains: brokers rebuild missing indexes, not wrong ones."""
    files = _site(OLD)
    points: list[SimFiles] = []

    def before(operation: Operation) -> None:
        if not operation.is_read:
            points.append(clone(files))

    files.on_operation = before
    replace_segment(files, "/log", BASE, may_be_torn=False, progress=_ignore_progress)
    points.append(clone(files))
    outcomes = set()
    for point in points:
        for seed in SEEDS:
            outcomes.add(_check_survivor(clone(point).crash(random.Random(seed))))
        outcomes.add(_check_survivor(clone(point).kill()))
    assert outcomes == {"old", "new"}


def _check_survivor(disk: SimFiles) -> str:
    data = disk.read_file(segment_path("/log", BASE, ".log"))
    index = segment_path("/log", BASE, ".index")
    has_index = disk.exists(index)
    if data == OLD:
        assert not has_index or disk.read_file(index) == b"old"
        return "old"
    assert list(iter_records(data)) == RECORDS
    assert not has_index or disk.read_file(index) != b"old"
    return "new"


def test_second_run_succeeds_after_crash() -> None:
    for at in range(1, 60):
        files = _site(OLD)
        files.crash_at(at)
        try:
            replace_segment(files, "/log", BASE, may_be_torn=False, progress=_ignore_progress)
        except SimCrash:
            disk = files.crash(random.Random(at))
            if {x.magic for x in walk_segment(disk, "/log", BASE)} != {2}:
                replace_segment(disk, "/log", BASE, may_be_torn=False, progress=_ignore_progress)
            assert _records(disk, "/log") == RECORDS
        else:
            return
    raise AssertionError("it never ended")
