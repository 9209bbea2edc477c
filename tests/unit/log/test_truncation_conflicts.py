"""Truncations that meet seals, syncs, retention, index checks, shutdown or an earlier failure."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from plog.errors import KafkaStorageError
from plogd.log.log import Log
from plogd.log.segment import index_rebuild
from tests.helpers.log.log_site import CONFIG, LogSite, base_offsets, values
from tests.helpers.sim.sim_files import Operation

NEW = b"new".ljust(100, b".")


def _old(offset: int) -> bytes:
    return (b"old %d" % offset).ljust(100, b".")


def _fill(site: LogSite, log: Log, count: int) -> None:
    """Append as an idempotent producer, in a new epoch for each five records."""
    for _ in range(count):
        offset = log.log_end_offset
        site.epoch = offset // 5
        site.append(log, value=_old(offset), producer_id=7, producer_epoch=0, base_sequence=offset)


def _new_site(count: int = 17) -> tuple[LogSite, Log]:
    site = LogSite().start()
    log = site.create("t-0")
    _fill(site, log, count)
    site.settle()
    site.write_checkpoints()
    return site, log


def _ends(log: Log) -> tuple[int, int, int, int]:
    return log.log_start_offset, log.high_watermark, log.durable_end_offset, log.log_end_offset


def _refuse(site: LogSite, name: str, suffix: str) -> None:
    site.files.fail_when(
        lambda operation: operation.name == name and operation.path.endswith(suffix), errno.ENOSPC
    )


def _fails(site: LogSite, later: object) -> None:
    with pytest.raises(KafkaStorageError):
        site.settle(later)
    site.files.fail_no_more()


def _sync_only(site: LogSite) -> None:
    """Run the sync rounds, but no seal."""
    while True:
        site.ports.timers.run_due()
        lanes = [lane for lane in site.ports.jobs.waiting if lane.startswith("sync")]
        if not lanes:
            return
        site.ports.jobs.run_one(lanes[0])


# -- batches, gaps and the start of the log ---------------------------------------------------


def test_cut_in_the_first_batch_of_a_segment_leaves_the_segment_empty() -> None:
    site = LogSite().start()
    log = site.create("t-0")
    for _ in range(4):
        site.append(log, 5, value=b"x" * 100)
    site.settle()
    assert base_offsets(log) == [0, 5, 10, 15]
    site.settle(log.truncate_to(7))
    assert (_ends(log), base_offsets(log)) == ((0, 5, 5, 5), [0, 5])
    site.append(log, value=NEW)
    site.settle()
    assert values(site.kill().log())[5] == NEW


def test_end_of_an_empty_log_keeps_its_producers_and_epochs() -> None:
    site, log = _new_site()
    log.roll()
    log.delete_records_before(17)
    site.settle()
    site.ports.advance(100_000)
    state = site.state(log)
    assert base_offsets(log) == [17]
    site.settle(log.truncate_to(17))
    assert site.state(log) == state
    assert list(log.producer_state.producers) == [7]


def test_cut_below_a_log_start_inside_a_batch_begins_the_log_again() -> None:
    site = LogSite().start()
    log = site.create("t-0")
    site.append(log, 10)
    site.settle()
    log.delete_records_before(5)
    site.settle(log.truncate_to(6))
    assert _ends(log) == (0, 0, 0, 0)
    assert site.kill().log().log_end_offset == 0


def test_damage_is_removed_with_what_follows_it() -> None:
    """A follower fetches these records from its leader again."""
    site = LogSite().start()
    log = site.create("t-0", replace(CONFIG, segment_bytes=1 << 20, index_interval_bytes=1 << 20))
    _fill(site, log, 12)
    site.settle()
    [*_, place] = [one for one in log.segments.active.records.places_from() if one.last_offset < 4]
    site.flip(site.path(log, 0), place.position + 16)
    site.settle(log.truncate_to(8))
    assert _ends(log) == (0, 3, 3, 3)
    assert site.append(log, value=NEW).first_offset == 3


# -- seals and syncs --------------------------------------------------------------------------


def test_unsealed_segments_are_synced_before_the_end_is_durable() -> None:
    site = LogSite().start()
    log = site.create("t-0")
    _fill(site, log, 17)
    synced: list[str] = []
    site.files.on_operation = lambda operation: _note_sync(operation, synced)
    site.settle(log.truncate_to(16))
    assert log.durable_end_offset == 16
    names = {path for path in synced if path.endswith(".log")}
    assert names >= {site.path(log, base) for base in (0, 5, 10, 15)}


def _note_sync(operation: Operation, synced: list[str]) -> None:
    if operation.name == "sync":
        synced.append(operation.path)


def test_sync_requested_during_a_truncation_is_not_lost() -> None:
    site = LogSite().start()
    log = site.create("t-0")
    _fill(site, log, 7)
    site.settle(log.truncate_to(100))
    assert _ends(log) == (0, 7, 7, 7)


def test_truncation_that_removes_nothing_after_a_failed_one_completes_the_log() -> None:
    site, log = _new_site()
    site.files.fail_when(lambda operation: operation.name in ("create", "append"), errno.ENOSPC)
    _fails(site, log.truncate_to(7))
    site.settle(log.truncate_to(17))
    assert _ends(log) == (0, 17, 17, 17)


def test_producers_of_deleted_segments_are_kept_although_no_snapshot_has_them() -> None:
    site = LogSite().start()
    log = site.create("t-0")
    site.settle()
    for number in range(17):
        first = number < 8
        site.append(
            log,
            value=_old(number),
            producer_id=1 if first else 2,
            producer_epoch=0,
            base_sequence=number if first else number - 8,
        )
    _sync_only(site)
    log.delete_records_before(10)
    site.settle(log.truncate_to(16))
    states = log.producer_state.producers
    assert {at: state.last_sequence for at, state in states.items()} == {1: 7, 2: 7}


# -- retention, checks and checkpoints --------------------------------------------------------


def test_files_of_deleted_segments_do_not_replace_those_of_a_log_that_begins_again() -> None:
    site = LogSite().start()
    log = site.create("t-0")
    site.settle()
    _fill(site, log, 17)
    _sync_only(site)
    log.delete_records_before(10)  # The files of segments 0 and 5 wait for the seals.
    site.settle(log.truncate_fully(5))
    site.epoch = 9
    for _ in range(3):
        site.append(log, value=NEW)
    site.settle()
    site.ports.advance(100_000)
    assert site.listing(log) == [5]
    assert values(site.kill().log()) == dict.fromkeys((5, 6, 7), NEW)


@pytest.mark.parametrize("steps", range(8))
@pytest.mark.parametrize("check_first", [False, True])
def test_index_check_of_a_truncated_segment_is_abandoned(
    check_first: bool, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_rebuild, "_STEP_BYTES", 1)
    monkeypatch.setattr("plogd.log.recovery.segment_recovery._CHUNK_BYTES", 100)
    site, log = _new_site(19)
    segment = list(log.segments)[1]
    rebuilds = site.manager._index_rebuilds
    waits = [] if not check_first else [rebuilds.check(log, segment)]
    later = None if check_first else log.truncate_to(7)
    for _ in range(steps):
        if site.ports.jobs.waiting:
            site.ports.jobs.run_one()
    if later is None:
        later = log.truncate_to(7)
    else:
        waits.append(rebuilds.check(log, segment))
    for one in (later, *waits):
        site.settle(one)
    assert segment.corrupt_ranges == []
    site.epoch = 9
    for _ in range(6):
        site.append(log, value=NEW)
    site.settle()
    assert list(values(log)) == list(range(13))


def test_older_write_of_a_checkpoint_does_not_restore_a_removed_end() -> None:
    site, log = _new_site(9)
    _fill(site, log, 3)
    site.settle()
    later = log.truncate_to(7)
    writing = site.manager.write_recovery_points()
    for one in (later, writing):
        site.settle(one)
    site = site.kill()
    assert site.log().log_end_offset == 7
    assert not [report for report in site.reports if "lost" in report]


# -- failures ---------------------------------------------------------------------------------


def test_epochs_are_written_after_a_repeated_truncation() -> None:
    site, log = _new_site()
    _refuse(site, "rename", ".log")
    _fails(site, log.truncate_to(7))
    site.settle(log.truncate_to(7))
    assert not log.leader_epochs.is_dirty
    assert b"15" not in site.files.read_file("/a/t-0/leader-epoch-checkpoint")


@pytest.mark.parametrize("start", [0, 100])
def test_unfinished_restart_is_completed_by_the_next_truncation(start: int) -> None:
    site, log = _new_site()
    _refuse(site, "create", ".log")
    _fails(site, log.truncate_fully(start))
    site.settle(log.truncate_to(50))
    assert _ends(log) == (start, start, start, start)
    assert site.append(log, value=NEW).first_offset == start


def test_failed_checkpoint_of_a_restart_does_not_move_the_log_start() -> None:
    site, log = _new_site()
    log.delete_records_before(12)
    site.settle(site.manager.write_log_starts())
    site.files.fail_when(lambda operation: operation.name in ("create", "append"), errno.ENOSPC)
    _fails(site, log.truncate_fully(8))
    site.settle(log.truncate_to(17))
    assert log.log_start_offset == 12


def test_segments_are_renamed_newest_first_after_a_failure() -> None:
    site, log = _new_site()
    _refuse(site, "rename", ".log")
    _fails(site, log.truncate_to(12))
    renamed: list[str] = []

    def note(operation: Operation) -> None:
        if operation.name == "rename" and operation.path.endswith(".log"):
            renamed.append(operation.path)

    site.files.on_operation = note
    site.settle(log.truncate_to(4))
    assert renamed == [site.path(log, base) for base in (15, 10, 5)]


def test_deleted_log_leaves_nothing_of_a_failed_truncation() -> None:
    site = LogSite().start()
    log = site.create("t-0")
    site.settle()
    before = site.files.descriptors.writing
    _fill(site, log, 17)
    _sync_only(site)
    _refuse(site, "rename", ".log")
    _fails(site, log.truncate_to(2))
    site.delete("t-0")
    site.ports.advance(200_000)
    assert site.files.descriptors.writing == before
    assert not site.manager._sealing._paused
    assert not site.manager._truncations._removed


def test_shutdown_waits_for_a_truncation() -> None:
    site, log = _new_site()
    log.truncate_to(7)
    site = site.restart()
    assert values(site.log()) == {at: _old(at) for at in range(7)}
    assert site.log().recovery_point == 7, "the stop was clean"
