"""What a log must still sync: written segments, new files, unsealed segments, overdue records."""

from __future__ import annotations

from plogd.log.segment.log_segment import LogSegment
from plogd.log.unsynced import Unsynced
from tests.helpers.log.log_data import SMALL
from tests.helpers.sim.sim_files import SimFiles


def _segments(*base_offsets: int) -> list[LogSegment]:
    files = SimFiles()
    files.mkdir("/log")
    return [LogSegment.create(files, "/log", base_offset, SMALL) for base_offset in base_offsets]


def _after_roll() -> tuple[Unsynced, LogSegment, LogSegment]:
    old, new = _segments(0, 10)
    unsynced = Unsynced(old, 0)
    unsynced.written_to(old)
    unsynced.rolled(new)
    unsynced.written_to(new)
    return unsynced, old, new


def test_each_sync_includes_a_written_segment_once() -> None:
    unsynced, old, new = _after_roll()
    unsynced.written_to(new)
    assert unsynced.has_new_files
    assert [file.path for file in unsynced.take_files()] == [
        old.records_file.path,
        new.records_file.path,
    ]
    assert not unsynced.has_new_files
    assert unsynced.take_files() == []


def test_sealed_segment_needs_no_sync() -> None:
    unsynced, old, new = _after_roll()
    assert unsynced.first_unsealed_offset == 0
    assert unsynced.sealed(old)
    assert unsynced.first_unsealed_offset == 10
    assert [file.path for file in unsynced.take_files()] == [new.records_file.path]


def test_segment_that_retention_deleted_is_not_sealed() -> None:
    unsynced, old, new = _after_roll()
    unsynced.drop([old])
    assert not unsynced.sealed(old)
    assert unsynced.unsealed == [new]


def test_truncated_log_ends_in_an_unsealed_segment() -> None:
    unsynced, old, new = _after_roll()
    unsynced.sealed(old)
    unsynced.truncated([new], old, 7)
    assert unsynced.unsealed == [old]
    assert unsynced.requested_end_offset == 7
    assert not unsynced.has_new_files
    assert unsynced.take_files() == []


def test_restarted_log_has_only_its_new_segment() -> None:
    unsynced, old, new = _after_roll()
    [first] = _segments(500)
    unsynced.truncated([old, new], first, 500)
    assert unsynced.unsealed == [first]


def test_records_are_overdue_after_they_have_waited() -> None:
    [segment] = _segments(0)
    unsynced = Unsynced(segment, 5)
    assert not unsynced.is_overdue(5, 1000, 10)
    assert not unsynced.is_overdue(6, 2000, 10)
    assert not unsynced.is_overdue(7, 2009, 10)
    assert unsynced.is_overdue(7, 2010, 10)


def test_request_restarts_the_wait() -> None:
    [segment] = _segments(0)
    unsynced = Unsynced(segment, 5)
    unsynced.is_overdue(6, 2000, 10)
    unsynced.requested(6)
    assert not unsynced.is_overdue(6, 2010, 10)
    assert not unsynced.is_overdue(7, 2011, 10)
    assert unsynced.is_overdue(7, 2021, 10)
