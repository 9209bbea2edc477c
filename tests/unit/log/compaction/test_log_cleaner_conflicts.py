"""Compactions that meet truncations, retention, deletions, a stop or a failed disk at any step."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace

import pytest

from plogd.log.log import Log
from plogd.log.segment.index_rebuild import IndexRebuilds
from tests.helpers.log.compaction_site import (
    COMPACT,
    compact,
    end_transaction,
    latest,
    put,
    step_compaction,
    stored,
    unfinished_files,
)
from tests.helpers.log.log_site import LogSite, base_offsets, values
from tests.helpers.sim.sim_ports import settled

RATE = 1000.0
"""A rate at which a compaction of these logs takes minutes."""


def _new_site(**settings: object) -> tuple[LogSite, Log]:
    site = LogSite(**settings).start()  # type: ignore[arg-type]
    log = site.create("t-0", COMPACT)
    _fill(site, log, 30)
    site.write_checkpoints()
    return site, log


def _fill(site: LogSite, log: Log, count: int, value: bytes = b"") -> None:
    for _ in range(count):
        offset = log.log_end_offset
        put(site, log, b"k%d" % (offset % 4), value or b"%d" % offset)
    site.settle()


def _at_each_step(act: Callable[[LogSite, Log], None]) -> int:
    """Interrupt a compaction at each of its steps with `act`, which also checks the result."""
    number = 0
    while True:
        site, log = _new_site()
        steps = step_compaction(site)
        if sum(1 for _ in zip(range(number), steps, strict=False)) < number:
            return number
        act(site, log)
        assert site.bugs == []
        number += 1


# -- truncation -------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [0, 8, 20, 27])
def test_truncation_ends_a_compaction_at_any_step(offset: int) -> None:
    def act(site: LogSite, log: Log) -> None:
        site.settle(log.truncate_to(offset))
        assert log.log_end_offset <= offset
        assert unfinished_files(site, log) == []
        assert not [one for one in stored(log) if one.offset >= offset]
        site.epoch = 7
        _fill(site, log, 15, b"new")
        expected = stored(log)
        assert [one.value for one in expected[-15:]] == [b"new"] * 15
        site = site.kill()
        assert stored(site.log()) == expected
        assert not [line for line in site.reports if "lost" in line]
        final = latest(site.log())
        while compact(site):
            pass
        assert latest(site.log()) == final
        assert len(stored(site.log())) < 15
        assert latest(site.restart().log()) == final

    assert _at_each_step(act) > 12


@pytest.mark.parametrize("start", [0, 12, 100])
def test_log_begins_again_at_any_step_of_a_compaction(start: int) -> None:
    def act(site: LogSite, log: Log) -> None:
        site.settle(log.truncate_fully(start))
        site.epoch = 7
        _fill(site, log, 20, b"new")
        while compact(site):
            pass
        final = latest(log)
        assert {one.value for one in stored(log)} == {b"new"}
        assert log.log_end_offset == start + 20
        assert latest(site.kill().log()) == final

    assert _at_each_step(act) > 12


@pytest.mark.parametrize("is_full", [False, True])
def test_tombstone_after_a_truncation_still_removes_the_older_value(is_full: bool) -> None:
    """A compacted part above the new end no longer counts as compacted."""
    site, log = _new_site()
    compact(site)
    start = log.log_end_offset
    put(site, log, b"gone", b"value")
    _fill(site, log, 12)
    end = log.log_end_offset
    _fill(site, log, 60)
    compact(site)
    site.settle(log.truncate_fully(start) if is_full else log.truncate_to(end))
    site.epoch = 7
    if is_full:
        put(site, log, b"gone", b"value")
    put(site, log, b"gone", None)
    for _ in range(4):
        _fill(site, log, 80)  # More records than the compacted part had.
        site.ports.advance(20_000)
        compact(site)
    assert [one for one in stored(log) if one.key == b"gone"] == []
    site = site.kill()
    assert [one for one in stored(site.log()) if one.key == b"gone"] == []


def test_truncation_does_not_wait_for_a_limited_rate() -> None:
    site, log = _new_site(log_cleaner_io_max_bytes_per_second=1.0)
    site.manager.cleaner.run()
    site.settle()
    site.settle(log.truncate_to(7))
    assert log.log_end_offset == 7


def test_failed_truncation_lets_the_cleaner_go_on_afterward() -> None:
    site, log = _new_site()
    site.files.fail_when(lambda one: one.name in ("create", "append"), errno.ENOSPC)
    later = log.truncate_to(20)
    site.ports.settle()
    assert later.done
    later.then(lambda _: None, lambda error: None)
    site.files.fail_no_more()
    assert not compact(site), "the log rejects writes until it is truncated"
    site.settle(log.truncate_to(20))
    assert compact(site)


# -- retention --------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [3, 8, 14, 26])
@pytest.mark.parametrize("wait_ms", [0, 5000])
def test_records_are_deleted_at_any_step_of_a_compaction(offset: int, wait_ms: int) -> None:
    def act(site: LogSite, log: Log) -> None:
        log.delete_records_before(offset)
        expected = latest(log)
        site.ports.advance(wait_ms)
        site.settle()
        assert latest(log) == expected
        assert site.manager.housekeeping.errors_by_task["compaction"] == 0
        site.ports.advance(5000)
        while compact(site):
            assert latest(log) == expected
        assert latest(log) == expected
        assert site.listing(log) == base_offsets(log)
        assert unfinished_files(site, log) == []
        site = site.kill()
        assert latest(site.log()).items() >= expected.items()
        assert not [line for line in site.reports if "lost" in line]

    assert _at_each_step(act) > 12


@pytest.mark.parametrize("offset", [3, 8, 14, 26])
def test_deleted_keys_stay_deleted_if_retention_interrupts_a_compaction(offset: int) -> None:
    """The records next to deleted segments must not count as compacted."""
    number = 0
    while True:
        site = LogSite().start()
        log = site.create("t-0", replace(COMPACT, segment_bytes=400))
        for count in range(24):
            put(site, log, b"k%d" % count, b"value")
        for count in range(24):
            put(site, log, b"k%d" % count, None)
        _fill(site, log, 12)
        steps = step_compaction(site)
        if sum(1 for _ in zip(range(number), steps, strict=False)) < number:
            break
        number += 1
        log.delete_records_before(offset)
        site.settle()
        for _ in range(3):
            site.ports.advance(20_000)
            _fill(site, log, 12)
            compact(site)
        assert b"value" not in {one.value for one in stored(log)}
    assert number > 12


def test_log_with_both_policies_is_compacted_and_deleted() -> None:
    site = LogSite().start()
    config = replace(COMPACT, cleanup_policy=("compact", "delete"), retention_ms=60_000)
    log = site.create("t-0", config)
    _fill(site, log, 30)
    compact(site)
    expected = latest(log)
    site.ports.advance(30_000)
    site.settle(site.manager.apply_retention(site.ports.clock.now_ms()))
    assert latest(log) == expected
    site.ports.advance(60_000)
    site.settle(site.manager.apply_retention(site.ports.clock.now_ms()))
    site.ports.advance(5000)
    assert stored(log) == []
    assert log.log_start_offset == log.log_end_offset == 30
    site = site.kill()
    assert site.log().log_end_offset == 30
    assert not [line for line in site.reports if "lost" in line]


# -- deletion, stop and failed disks ----------------------------------------------------------


def test_topic_is_deleted_and_created_again_at_any_step_of_a_compaction() -> None:
    def act(site: LogSite, log: Log) -> None:
        site.delete("t-0")
        new = site.create("t-0", COMPACT)
        _fill(site, new, 20, b"new")
        site.ports.advance(5000)
        site.settle()
        while compact(site):
            pass
        assert {one.value for one in stored(new)} == {b"new"}
        assert len(latest(new)) == 4
        assert unfinished_files(site, new) == []
        assert not [one for one in site.files.listdir("/a") if one.endswith("-delete")]
        expected = latest(new)
        assert latest(site.kill().log()) == expected

    assert _at_each_step(act) > 12


def test_broker_stops_cleanly_at_any_step_of_a_compaction() -> None:
    def act(site: LogSite, log: Log) -> None:
        expected = latest(log)
        site = site.restart()
        log = site.log()
        assert latest(log) == expected
        assert log.recovery_point == log.log_end_offset, "the stop was clean"
        assert unfinished_files(site, log) == []
        compact(site)
        assert latest(log) == expected
        assert len(stored(log)) < 15
        assert not [line for line in site.reports if "lost" in line]

    assert _at_each_step(act) > 12


def test_stop_does_not_wait_for_a_limited_rate() -> None:
    site, log = _new_site(log_cleaner_io_max_bytes_per_second=1.0)
    expected = latest(log)
    later = site.manager.cleaner.run()
    site.settle()
    assert not later.done
    site = site.restart()
    assert latest(site.log()) == expected


def test_directory_goes_offline_at_any_step_of_a_compaction() -> None:
    def act(site: LogSite, log: Log) -> None:
        expected = latest(log)
        site.manager.storage_failed("/a", OSError(errno.EIO, "Input/output error"))
        site.settle()
        site.ports.advance(200_000)
        assert not compact(site)
        assert latest(site.kill().log()) == expected

    assert _at_each_step(act) > 12


@pytest.mark.parametrize("is_deleted", [False, True])
def test_no_file_stays_open_after_a_deletion_or_a_failed_disk(is_deleted: bool) -> None:
    """The log no longer contains the segments that a swap has replaced."""

    def act(site: LogSite, log: Log) -> None:
        if is_deleted:
            site.delete("t-0")
        else:
            site.manager.storage_failed("/a", OSError(errno.EIO, "Input/output error"))
        site.settle()
        site.ports.advance(200_000)
        log.close()  # The log of a failed disk keeps its own segments open.
        descriptors = site.files.descriptors
        assert (descriptors.writing, descriptors.open_on_demand()) == (0, 0)

    assert _at_each_step(act) > 12


def test_nothing_is_changed_after_the_directory_has_gone_offline() -> None:
    def act(site: LogSite, log: Log) -> None:
        site.manager.storage_failed("/a", OSError(errno.EIO, "Input/output error"))
        site.settle()
        names = set(site.files.listdir(log.directory))
        site.ports.advance(200_000)
        assert set(site.files.listdir(log.directory)) == names

    _at_each_step(act)


# -- other work on the log --------------------------------------------------------------------


def test_paused_log_is_not_compacted() -> None:
    site, log = _new_site()
    cleaner = site.manager.cleaner
    _run(site, cleaner.pause(log))
    _run(site, cleaner.pause(log))
    assert not compact(site)
    cleaner.resume(log)
    assert not compact(site)
    cleaner.resume(log)
    assert compact(site)


def _run(site: LogSite, work: object) -> None:
    from plogd.ports import spawn

    settled(site.ports, spawn(work))  # type: ignore[arg-type]


@pytest.mark.parametrize("is_slow", [False, True], ids=["fast disk", "slow disk"])
def test_log_is_appended_to_and_rolled_at_any_step_of_a_compaction(is_slow: bool) -> None:
    def act(site: LogSite, log: Log) -> None:
        if is_slow:
            site.manager.dirs.writes_of(log.log_dir).took(25.0)
            assert site.manager.dirs.writes_of(log.log_dir).is_slow
        for number in range(15):
            put(site, log, b"k%d" % (number % 4), b"during %d" % number)
        site.settle()
        expected = latest(log)
        assert {one.value for one in expected.values()} == {b"during %d" % n for n in range(11, 15)}
        assert latest(site.kill().log()) == expected

    assert _at_each_step(act) > 12


@pytest.mark.parametrize("steps", range(6))
@pytest.mark.parametrize("check_first", [False, True])
def test_index_rebuild_during_a_compaction_leaves_correct_indexes(
    check_first: bool, steps: int
) -> None:
    site, log = _new_site()
    rebuilds: IndexRebuilds = site.manager._index_rebuilds
    expected = latest(log)
    later = None
    if check_first:
        for segment in list(log.segments):
            rebuilds.check(log, segment)
    else:
        later = site.manager.cleaner.run()
    for _ in range(4 * steps):
        if not site.ports.timers.run_due() and site.ports.jobs.waiting:
            site.ports.jobs.run_one()
    if later is None:
        later = site.manager.cleaner.run()
    else:
        for segment in list(log.segments):
            rebuilds.check(log, segment)
    site.settle(later)
    assert latest(log) == expected
    assert [segment.corrupt_ranges for segment in log.segments if segment.corrupt_ranges] == []
    assert unfinished_files(site, log) == []
    site = site.restart()
    assert latest(site.log()) == expected
    assert not [line for line in site.reports if "an index" in line]


def test_two_runs_at_the_same_time_compact_once() -> None:
    site, log = _new_site()
    laters = [site.manager.cleaner.run() for _ in range(3)]
    site.ports.settle()
    assert sorted(settled(site.ports, later) for later in laters) == [False, False, True]
    assert len(stored(log)) < 15


def test_follower_compacts_what_its_leader_has_committed() -> None:
    site, log = _new_site()
    site.leads = False
    _fill(site, log, 20)
    assert log.high_watermark == 30
    compact(site)
    log.high_watermark = log.log_end_offset
    assert list(values(log))[-20:] == list(range(30, 50))


def test_aborted_records_are_never_read_while_their_index_is_replaced() -> None:
    site = LogSite().start()
    log = site.create("t-0", replace(COMPACT, delete_retention_ms=1000))
    for number in range(12):
        put(
            site,
            log,
            b"k%d" % (number % 3),
            b"committed" if number % 2 else b"aborted",
            producer_id=5,
            producer_epoch=0,
            base_sequence=number,
            is_transactional=True,
        )
        end_transaction(site, log, 5, commit=bool(number % 2))
    _fill(site, log, 12)
    expected = latest(log, read_committed=True)
    for seed in range(6):
        site.ports.advance(2000)
        compact(site)
        assert latest(log, read_committed=True) == expected
        _fill(site, log, 6)
        expected = latest(log, read_committed=True)
        site = site.crash(seed)
        log = site.log()
        assert latest(log, read_committed=True) == expected
    assert b"aborted" not in {one.value for one in stored(log)}
