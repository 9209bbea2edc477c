"""Truncation: records are removed from the end of a log, or all of them."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import Any

import pytest

from plog.errors import KafkaStorageError
from plogd.log.log import Log
from tests.helpers.log.log_data import client_batch
from tests.helpers.log.log_site import (
    CONFIG,
    LogSite,
    base_offsets,
    batch_offsets,
    values,
)
from tests.helpers.sim.sim_files import SimCrash

NEW = b"new".ljust(100, b".")
ENDS = (0, 1, 4, 5, 6, 9, 10, 14, 15, 16, 17, 20)


def _ends(log: Log) -> tuple[int, int, int]:
    return log.high_watermark, log.durable_end_offset, log.log_end_offset


def _snapshots(log: Log) -> list[int]:
    return log.producer_state.snapshots.offsets()


def _old(offset: int) -> bytes:
    return (b"old %d" % offset).ljust(100, b".")


def _fill(site: LogSite, log: Log, count: int) -> None:
    """Append as an idempotent producer, in a new epoch for each five records."""
    for _ in range(count):
        site.epoch = log.log_end_offset // 5
        offset = log.log_end_offset
        site.append(log, value=_old(offset), producer_id=7, producer_epoch=0, base_sequence=offset)


def _new_site(count: int = 17) -> tuple[LogSite, Log]:
    site = LogSite().start()
    log = site.create("t-0")
    _fill(site, log, count)
    site.settle()
    site.write_checkpoints()
    return site, log


# -- a part of the log ------------------------------------------------------------------------


@pytest.mark.parametrize("offset", ENDS)
def test_log_equals_one_to_which_the_rest_was_never_appended(offset: int) -> None:
    site, log = _new_site()
    site.settle(log.truncate_to(offset))
    end = min(offset, 17)
    assert _ends(log) == (end, end, end)
    _, other = _new_site(end)
    assert log.leader_epochs.entries == other.leader_epochs.entries
    assert {at: state.to_snapshot() for at, state in log.producer_state.producers.items()} == {
        at: state.to_snapshot() for at, state in other.producer_state.producers.items()
    }
    assert values(log) == values(other)
    assert [at for at in _snapshots(log) if at > end] == []


@pytest.mark.parametrize("offset", ENDS)
def test_new_records_follow_and_survive_a_kill(offset: int) -> None:
    site, log = _new_site()
    site.settle(log.truncate_to(offset))
    end = min(offset, 17)
    site.epoch = 9
    for _ in range(6):
        site.append(log, value=NEW)
    site.settle()
    expected = {at: _old(at) for at in range(end)} | {at: NEW for at in range(end, end + 6)}
    assert values(log) == expected
    site = site.kill()
    assert values(site.log()) == expected
    site = site.restart()
    assert values(site.log()) == expected


def test_batch_that_contains_the_offset_is_removed() -> None:
    site = LogSite().start()
    log = site.create("t-0")
    for count in (2, 5, 3):
        site.append(log, count)
    site.settle()
    site.settle(log.truncate_to(4))
    assert _ends(log) == (2, 2, 2)
    assert site.append(log).first_offset == 2


def test_truncation_inside_a_gap_ends_after_the_last_batch() -> None:
    """Recovery takes missing offsets below the high watermark for damage."""
    site = LogSite().start()
    log = site.create("t-0", replace(CONFIG, segment_bytes=1 << 20))
    data = bytearray()
    for offset in (0, 50):
        batch = client_batch()
        batch[:8] = offset.to_bytes(8, "big")
        batch[12:16] = (0).to_bytes(4, "big")
        data += batch
    log.append_as_follower(memoryview(data), leader_epoch=0, now_ms=0)
    site.settle()
    site.settle(log.truncate_to(30))
    assert _ends(log) == (1, 1, 1)
    assert batch_offsets(log, 0, 51) == [0]
    log.append_as_follower(memoryview(data)[len(data) // 2 :], leader_epoch=0, now_ms=0)
    site.settle()
    assert batch_offsets(site.kill().log()) == [0, 50]


def test_truncation_at_or_above_the_end_changes_nothing() -> None:
    site, log = _new_site()
    state = site.state(log)
    for offset in (17, 18, 1000):
        site.settle(log.truncate_to(offset))
        assert site.state(log) == state
    assert site.append(log).first_offset == 17


def test_reader_of_a_removed_segment_finishes() -> None:
    site, log = _new_site()
    data = log.read(11, 10_000, end_offset=17)
    assert data.region is not None
    before = data.region.read()
    site.settle(log.truncate_to(7))
    assert data.region.read() == before
    data.region.close()


# -- crashes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [5, 7, 12, 16])
def test_power_loss_at_any_operation_leaves_a_prefix_with_all_kept_records(offset: int) -> None:
    finished, number = False, 0
    while not finished:
        number += 1
        for seed in range(4):
            site, log = _new_site()
            site.files.crash_at(site.files.operations + number)
            try:
                site.settle(log.truncate_to(offset))
                for _ in range(3):
                    site.epoch = 8
                    site.append(log, value=NEW)
                site.settle()
                finished = True
            except SimCrash:
                pass
            site = site.crash(seed)
            found = values(site.log())
            count = len(found)
            assert list(found) == list(range(count))
            new = [at for at, value in found.items() if value == NEW]
            old = [at for at, value in found.items() if value != NEW]
            assert len(old) >= offset
            assert not new or len(old) == offset, "an old record reappeared next to a new one"
            assert not [report for report in site.reports if "lost" in report]
    assert number > 10


def test_old_sync_does_not_advance_the_durable_end() -> None:
    site, log = _new_site()
    with site.ports.turn:
        site.append(log, value=_old(17))
    assert site.ports.jobs.waiting, "a sync is in progress"
    later = log.truncate_to(10)
    site.settle(later)
    assert _ends(log) == (10, 10, 10)
    with site.ports.turn:
        site.append(log, value=NEW)
    assert log.durable_end_offset == 10
    site.settle()
    assert log.durable_end_offset == 11


# -- failures ---------------------------------------------------------------------------------


def _fails(site: LogSite, later: Any) -> Exception:
    with pytest.raises(KafkaStorageError) as caught:
        site.settle(later)
    return caught.value


def test_full_disk_prevents_the_truncation_until_it_is_repeated() -> None:
    site, log = _new_site()
    site.files.fail_when(lambda operation: operation.name in ("create", "append"), errno.ENOSPC)
    assert "free space" in str(_fails(site, log.truncate_to(7)))
    with pytest.raises(KafkaStorageError, match="truncated"):
        site.append(log)
    assert site.offline == []
    site.files.fail_no_more()
    site.settle(log.truncate_to(7))
    assert batch_offsets(log) == list(range(7))
    assert site.append(log).first_offset == 7


@pytest.mark.parametrize("name", ["rename", "truncate", "sync", "sync_dir"])
def test_failed_disk_takes_the_directory_offline(name: str) -> None:
    site, log = _new_site()
    site.files.fail_when(
        lambda operation: operation.name == name and "t-0" in operation.path, errno.EIO
    )
    _fails(site, log.truncate_to(7))
    assert site.offline == ["/a"]
    site.files.fail_no_more()
    site = site.crash(1)
    assert batch_offsets(site.log())[:7] == list(range(7))


def test_closed_log_cannot_be_truncated() -> None:
    site, log = _new_site()
    log.close()
    _fails(site, log.truncate_to(7))


def test_log_closed_during_its_truncation_keeps_the_directory_online() -> None:
    site, log = _new_site()
    later = log.truncate_to(7)
    log.close()
    _fails(site, later)
    assert site.offline == []


def test_stale_snapshots_are_not_written_after_a_truncation() -> None:
    """A seal that was delayed by a full disk would record producers of removed records."""
    site, log = _new_site(4)
    site.files.fail_when(lambda operation: operation.path.endswith(".snapshot.tmp"), errno.ENOSPC)
    _fill(site, log, 13)
    site.settle()
    site.files.fail_no_more()
    site.settle(log.truncate_to(7))
    site.ports.advance(120_000)
    assert [at for at in _snapshots(log) if at > 7] == []
    site.epoch = 9
    for _ in range(10):
        site.append(log, value=NEW)
    site.settle()
    site.ports.advance(120_000)
    assert log.recovery_point == base_offsets(log)[-1]
    site = site.kill()
    assert site.log().producer_state.producers[7].last_sequence == 6


# -- all records ------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [0, 3, 5, 16, 17, 100])
def test_log_begins_again_at_any_offset(start: int) -> None:
    site, log = _new_site()
    site.settle(log.truncate_fully(start))
    assert (log.log_start_offset, *_ends(log)) == (start, start, start, start)
    assert log.leader_epochs.entries == ()
    assert log.producer_state.producers == {}
    assert (base_offsets(log), _snapshots(log)) == ([start], [])
    site.epoch = 9
    for _ in range(7):
        site.append(log, value=NEW)
    site.settle()
    expected = dict.fromkeys(range(start, start + 7), NEW)
    assert values(log) == expected
    site = site.kill()
    assert values(site.log()) == expected
    assert site.log().log_start_offset == start
    assert values(site.restart().log()) == expected


@pytest.mark.parametrize("start", [0, 7, 100])
def test_power_loss_while_a_log_begins_again_mixes_no_records(start: int) -> None:
    finished, number = False, 0
    while not finished:
        number += 1
        for seed in range(3):
            site, log = _new_site()
            site.files.crash_at(site.files.operations + number)
            try:
                site.settle(log.truncate_fully(start))
                site.epoch = 8
                for _ in range(3):
                    site.append(log, value=NEW)
                site.settle()
                finished = True
            except SimCrash:
                pass
            site = site.crash(seed)
            log = site.log()
            found = values(log)
            assert list(found) == list(range(log.log_start_offset, log.log_end_offset))
            assert len({value == NEW for value in found.values()}) <= 1
            site.append(log)
            site.settle()
    assert number > 8


def test_truncation_below_the_start_of_the_log_removes_all_records() -> None:
    site, log = _new_site()
    log.delete_records_before(12)
    site.settle()
    site.settle(log.truncate_to(8))
    assert (log.log_start_offset, *_ends(log)) == (8, 8, 8, 8)


def test_truncation_waits_for_the_writes_of_a_slow_disk() -> None:
    site, log = _new_site()
    site.files.append_ms = lambda path: 25.0
    site.append(log, value=_old(17))
    site.files.append_ms = lambda path: 0.0
    info = site.append(log, value=_old(18))
    assert info.writing is not None
    site.settle(log.truncate_to(7))
    assert info.writing.is_written
    assert _ends(log) == (7, 7, 7)
    site.append(log, value=NEW)
    site.settle()
    assert list(values(log)) == list(range(8))


def test_truncations_of_one_log_run_one_after_the_other() -> None:
    site, log = _new_site()
    laters = [log.truncate_to(offset) for offset in (12, 7, 9)]
    for later in laters:
        site.settle(later)
    assert _ends(log) == (7, 7, 7)
    assert values(site.kill().log()) == {at: _old(at) for at in range(7)}


def test_repeated_truncation_completes_one_that_failed_halfway() -> None:
    site, log = _new_site()
    site.files.fail_when(lambda operation: "leader-epoch" in operation.path, errno.ENOSPC)
    _fails(site, log.truncate_to(7))
    site.files.fail_no_more()
    site.settle(log.truncate_to(10))
    assert _ends(log) == (7, 7, 7)
    assert log.leader_epochs.entries == ((0, 0), (1, 5))
    site.epoch = 9
    site.append(log, value=NEW)
    site.settle()
    assert values(site.kill().log()) == {at: _old(at) for at in range(7)} | {7: NEW}
