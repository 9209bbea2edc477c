"""Records deleted from the start of a log: unreadable immediately, removed by whole segments."""

from __future__ import annotations

import random

import pytest

from plog.errors import KafkaStorageError, OffsetOutOfRange
from plogd.log.time_lookup import max_timestamp_offset
from tests.helpers.log.log_site import (
    CONFIG,
    LogSite,
    base_offsets,
    batch_offsets,
    four_segments,
    values,
)
from tests.helpers.sim.sim_files import SimCrash
from tests.helpers.steps import finished


def test_reads_below_the_new_start_are_refused_and_those_above_are_not() -> None:
    _, log = four_segments()
    log.delete_records_before(12)
    assert log.log_start_offset == 12
    with pytest.raises(OffsetOutOfRange):
        log.read(11, 1000, end_offset=17)
    assert batch_offsets(log) == [12, 13, 14, 15, 16]


def test_segments_wholly_below_the_new_start_are_deleted_immediately() -> None:
    site, log = four_segments()
    log.delete_records_before(12)
    assert base_offsets(log) == [10, 15]
    site.ports.advance(CONFIG.file_delete_delay_ms)
    assert site.listing(log) == [10, 15]


def test_active_segment_stays_even_if_all_of_it_is_deleted() -> None:
    site, log = four_segments()
    log.delete_records_before(17)
    assert base_offsets(log) == [15]
    assert batch_offsets(log) == []
    site.append(log)
    site.settle()
    assert batch_offsets(log) == [17]


def test_deletion_below_the_log_start_changes_nothing() -> None:
    _, log = four_segments()
    log.delete_records_before(12)
    for offset in (12, 5, 0):
        log.delete_records_before(offset)
        assert (log.log_start_offset, base_offsets(log)) == (12, [10, 15])


@pytest.mark.parametrize("offset", [18, 1 << 62, -1, -5])
def test_deletion_above_the_high_watermark_is_refused(offset: int) -> None:
    _, log = four_segments()
    with pytest.raises(OffsetOutOfRange, match="high watermark is 17"):
        log.delete_records_before(offset)
    assert log.log_start_offset == 0


def test_uncommitted_records_are_not_deleted() -> None:
    site, log = four_segments()
    site.leads = False
    site.append(log)
    with pytest.raises(OffsetOutOfRange):
        log.delete_records_before(18)


def test_records_that_a_kill_brings_back_have_their_epochs() -> None:
    """A seal writes the epochs before the log start offset is on disk."""
    site, _ = four_segments()
    site = site.restart()  # Each life appends in an epoch of its own.
    log = site.log()
    site.fill(log, 1)
    site.settle()
    log.delete_records_before(18)
    site.fill(log, 5)
    while site.ports.jobs.waiting:  # The seal; a timer would begin to write the log start offset.
        site.ports.jobs.run_one(site.ports.jobs.waiting[0])
    assert log.leader_epochs.entries == ((1, 18),)
    assert not log.leader_epochs.is_dirty
    log = site.kill().log()
    assert log.log_start_offset == 0
    assert log.leader_epochs.entries == ((0, 0), (1, 17))


def test_epochs_of_deleted_records_leave_the_file_once_the_log_start_is_durable() -> None:
    site, _ = four_segments()
    site = site.restart()
    log = site.log()
    site.fill(log, 1)
    site.settle()
    log.delete_records_before(18)
    site.settle(site.manager.write_log_start_of(log))
    site.fill(log, 5)
    site.settle()
    assert site.files.read_file(f"{log.directory}/leader-epoch-checkpoint") == b"0\n1\n1 18\n"


def test_oldest_epoch_begins_at_the_log_start() -> None:
    _, log = four_segments()
    log.delete_records_before(12)
    assert log.leader_epochs.entries == ((0, 12),)


def test_offline_or_closed_log_refuses_record_deletion() -> None:
    _, log = four_segments()
    log.go_offline()
    with pytest.raises(KafkaStorageError):
        log.delete_records_before(3)


def test_record_deletion_does_not_apply_retention() -> None:
    """Only the log start decides here, not the age of the segments."""
    site = LogSite().start()
    log = site.create("t-0")
    site.fill(log, 17)
    site.settle()
    site.ports.advance(1e12)
    log.delete_records_before(7)
    assert base_offsets(log) == [5, 10, 15]


@pytest.mark.parametrize("offset", [5, 12, 15, 17])
def test_crash_restores_no_deleted_record_and_loses_no_other(offset: int) -> None:
    """At every file operation: the start is the old or the new one; once acknowledged, the new."""
    total, log = four_segments()
    before = total.files.operations
    _delete_all_of_it(total, offset)
    for number in range(before + 1, total.files.operations + 2):
        site, log = four_segments()
        kept = values(log)
        site.files.crash_at(number)
        told: list[int] = []
        try:
            _delete_all_of_it(site, offset, told)
        except SimCrash:
            pass
        for seed in range(4):
            after = site._successor(site.files.crash(random.Random(seed))).start()
            found = after.log()
            assert found.log_end_offset == 17
            assert found.log_start_offset in ({offset} if told else {0, offset})
            assert values(found) == {o: kept[o] for o in range(found.log_start_offset, 17)}
            after.append(found)
            after.settle()
            assert batch_offsets(found)[-1] == 17
            after.stop()


def _delete_all_of_it(site: LogSite, offset: int, told: list[int] | None = None) -> None:
    log = site.log()
    log.delete_records_before(offset)
    assert site.settle(site.manager.write_log_start_of(log))
    if told is not None:
        told.append(offset)
    site.ports.advance(CONFIG.file_delete_delay_ms)


@pytest.mark.parametrize(
    ("offset", "expected"),
    [(0, (900, 1)), (1, (900, 1)), (2, (9, 3)), (3, (9, 3)), (5, (5, 5)), (6, None)],
)
def test_largest_timestamp_is_that_of_the_remaining_records(
    offset: int, expected: tuple[int, int] | None
) -> None:
    """The log may begin in the middle of a segment, and of a batch."""
    site = LogSite().start()
    log = site.create("t-0")
    for times in ((7, 900), (8, 9), (4, 5)):
        site.append(log, 2, timestamps=times)
    site.settle()
    log.delete_records_before(offset)
    found = finished(max_timestamp_offset(log))
    assert (found and (found.timestamp, found.offset)) == expected
