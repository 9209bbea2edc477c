"""One log: appends, and when they become durable (R1, R7, R9, R11)."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from plog.errors import (
    InvalidProducerEpoch,
    InvalidRecord,
    KafkaError,
    KafkaStorageError,
    MessageTooLarge,
    OutOfOrderSequenceNumber,
    RecordListTooLarge,
)
from plog.records.batch import parse_header
from plogd.log.batch_validator import AppendOrigin
from plogd.log.log import Log
from plogd.log.time_lookup import max_timestamp_offset
from plogd.topic_config import TopicConfig
from tests.helpers.log.log_data import T0, client_batch
from tests.helpers.log.log_site import CONFIG, LogSite, batch_offsets, spied
from tests.helpers.sim.sim_files import Operation
from tests.helpers.steps import finished


def _site(config: TopicConfig = CONFIG, **settings: Any) -> tuple[LogSite, Log]:
    site = LogSite(**settings).start()
    return site, site.create("t-0", config)


def _append(log: Log, batch: memoryview, epoch: int = 0) -> int:
    return log.append_as_leader(batch, leader_epoch=epoch, now_ms=T0).first_offset


# -- append -----------------------------------------------------------------------------------


def test_batch_gets_the_next_offsets_and_the_leaders_epoch() -> None:
    site, log = _site()
    site.epoch = 4
    assert site.append(log, 3).last_offset == 2
    batch = client_batch(2)
    info = log.append_as_leader(batch, leader_epoch=5, now_ms=T0)
    assert (info.first_offset, info.last_offset, info.log_append_time_ms) == (3, 4, -1)
    assert (info.log_start_offset, info.duplicate) == (0, False)
    header = parse_header(batch)
    assert (header.base_offset, header.partition_leader_epoch) == (3, 5)
    assert log.leader_epochs.entries == ((4, 0), (5, 3))
    site.settle()
    assert batch_offsets(log) == [0, 3]
    assert log.size_bytes == sum(segment.size_bytes for segment in log.segments)


def test_append_info_has_the_log_append_time() -> None:
    site, log = _site(replace(CONFIG, message_timestamp_type="LogAppendTime"))
    info = log.append_as_leader(client_batch(timestamp=5), leader_epoch=0, now_ms=T0)
    assert info.log_append_time_ms == T0
    site.settle()
    assert finished(max_timestamp_offset(log)) == (T0, 0, 0)


def _of_producer(epoch: int, sequence: int) -> memoryview:
    return client_batch(producer_id=7, producer_epoch=epoch, base_sequence=sequence)


@pytest.mark.parametrize(
    ("batch", "error"),
    [
        (lambda: client_batch(value=b"x" * 2000), MessageTooLarge),
        (lambda: memoryview(bytearray(b"".join([client_batch(), client_batch()]))), InvalidRecord),
        (lambda: memoryview(bytearray()), InvalidRecord),
        (lambda: client_batch(value=b"x" * 1000), RecordListTooLarge),
        (lambda: _of_producer(epoch=1, sequence=5), OutOfOrderSequenceNumber),
        (lambda: _of_producer(epoch=0, sequence=1), InvalidProducerEpoch),
    ],
)
def test_refused_batch_changes_nothing(
    batch: Callable[[], memoryview], error: type[KafkaError]
) -> None:
    site, log = _site(replace(CONFIG, max_message_bytes=1500))
    site.append(log, producer_id=7, producer_epoch=1, base_sequence=0)
    site.settle()
    before = site.state(log)
    with pytest.raises(error):
        _append(log, batch())
    assert site.state(log) == before
    assert site.ports.timers.next_due_ms is None


def test_coordinator_batches_are_appended_one_by_one() -> None:
    _, log = _site()
    two = memoryview(bytearray(b"".join([client_batch(), client_batch()])))
    with pytest.raises(InvalidRecord, match="exactly one record batch"):
        log.append_as_leader(two, leader_epoch=0, now_ms=T0, origin=AppendOrigin.COORDINATOR)


def test_append_with_an_old_leader_epoch_fails_an_assertion() -> None:
    """R6: an offset must not have two records in one epoch."""
    _, log = _site()
    _append(log, client_batch(), epoch=3)
    with pytest.raises(AssertionError, match="deposed"):
        _append(log, client_batch(), epoch=2)


def test_duplicate_gets_the_offsets_of_the_first_and_is_not_written() -> None:
    """R7: recognized right after the append, durable or not."""
    site, log = _site()
    first = site.append(log, 2, producer_id=7, producer_epoch=0, base_sequence=0)
    before = site.state(log)
    again = site.append(log, 2, producer_id=7, producer_epoch=0, base_sequence=0)
    assert again.duplicate
    assert (again.first_offset, again.last_offset) == (first.first_offset, first.last_offset)
    assert site.state(log) == before
    assert log.durable_end_offset == 0


def test_closed_or_offline_log_refuses_appends() -> None:
    site, log = _site()
    log.close()
    with pytest.raises(KafkaStorageError, match="closed"):
        site.append(log)
    other = site.create("u-0")
    site.manager.storage_failed("/a", OSError(errno.EIO, "broken"))
    with pytest.raises(KafkaStorageError, match="/a is offline"):
        site.append(other)


# -- becoming durable -------------------------------------------------------------------------


def test_durable_end_moves_to_the_end_at_the_beginning_of_the_round() -> None:
    site, log = _site()
    moves: list[int] = []
    log.on_durable = lambda: moves.append(log.durable_end_offset)
    site.append(log, 2)
    site.append(log)
    site.ports.timers.run_due()
    site.append(log)
    assert (log.durable_end_offset, log.acknowledged_end_offset, log.log_end_offset) == (0, 0, 4)
    site.ports.jobs.run_one()
    assert (log.durable_end_offset, log.acknowledged_end_offset) == (3, 3)
    site.settle()
    assert moves == [3, 4]


def test_round_syncs_the_records_of_the_active_segment_only() -> None:
    """R12: an active index is never synced."""
    site, log = _site()
    synced = spied(site.files, "sync")
    site.fill(log, 3)
    site.settle()
    assert synced() == [site.path(log, 0)]


def test_directory_is_synced_in_the_round_that_passes_a_new_segments_base() -> None:
    """R11."""
    site, log = _site()
    site.fill(log, 5)
    site.settle()
    operations: list[tuple[str, str]] = []

    def observe(operation: Operation) -> None:
        if operation.name in ("sync", "sync_dir"):
            operations.append((operation.name, operation.path))

    site.files.on_operation = observe
    site.fill(log, 1)
    site.ports.timers.run_due()
    site.ports.jobs.run_one("sync:1")
    assert operations == [("sync", site.path(log, 5)), ("sync_dir", log.directory)]
    assert log.durable_end_offset == 6
    site.settle()
    operations.clear()
    site.fill(log, 1)
    site.settle()
    assert operations == [("sync", site.path(log, 5))]


def test_round_syncs_all_segments_with_unsynced_bytes() -> None:
    """Rolled segments, too: they may be sealed later than the round."""
    site, log = _site()
    synced = spied(site.files, "sync")
    site.fill(log, 12)
    site.ports.timers.run_due()
    site.ports.jobs.run_one("sync:1")
    assert synced() == [site.path(log, base) for base in (0, 5, 10)]
    assert log.durable_end_offset == 12


def test_segment_rolled_during_a_round_is_synced_by_the_next() -> None:
    site, log = _site()
    site.fill(log, 4)
    site.ports.timers.run_due()
    site.fill(log, 2)
    synced, directories = spied(site.files, "sync"), spied(site.files, "sync_dir")
    site.ports.jobs.run_one("sync:1")
    assert log.durable_end_offset == 4
    assert directories() == []
    site.settle()
    assert log.durable_end_offset == 6
    assert log.directory in directories()
    assert synced() == []  # The last spy has replaced it.


def test_sync_is_requested_after_flush_messages_records() -> None:
    site, log = _site(replace(CONFIG, flush_messages=3))
    for records, durable in [(2, 0), (1, 3), (2, 3), (5, 10), (1, 10)]:
        site.append(log, records)
        assert log.acknowledged_end_offset == log.log_end_offset
        site.settle()
        assert log.durable_end_offset == durable
    assert log.has_unflushed


def test_flush_before_visible_acknowledges_only_what_is_durable_at_any_interval() -> None:
    site, log = _site(replace(CONFIG, flush_messages=1000), plog_flush_before_visible=True)
    site.append(log)
    assert (log.acknowledged_end_offset, log.high_watermark) == (0, 0)
    site.settle()
    assert (log.acknowledged_end_offset, log.high_watermark) == (1, 1)


def test_unsynced_bytes_are_those_of_the_batches() -> None:
    site, log = _site(plog_unsynced_max_bytes=200)
    [rounds] = site.manager.sync_rounds
    seen = []
    for _ in range(2):
        site.fill(log, 1)
        seen.append(rounds.has_room)
    site.settle()
    assert [*seen, rounds.has_room] == [True, False, True]


def test_second_sync_of_the_same_end_does_not_notify() -> None:
    site, log = _site()
    moves: list[int] = []
    log.on_durable = lambda: moves.append(log.durable_end_offset)
    site.append(log)
    site.settle()
    log.request_sync()
    site.settle()
    assert moves == [1]


def test_log_closed_during_its_round_is_not_notified() -> None:
    site, log = _site()
    log.on_durable = lambda: pytest.fail("the log has been closed")
    site.append(log)
    site.ports.timers.run_due()
    log.close()
    site.ports.jobs.run_all()
    assert log.durable_end_offset == 0


def test_on_durable_is_optional() -> None:
    site, _ = _site()
    [fresh] = site.settle(site.manager.create([site.new("u-0")]))
    _append(fresh, client_batch())
    site.settle()
    assert fresh.durable_end_offset == 1


# -- flush.ms ---------------------------------------------------------------------------------


def _flushing(flush_ms: int) -> tuple[LogSite, Log]:
    return _site(replace(CONFIG, flush_messages=1 << 60, flush_ms=flush_ms))


def test_append_is_synced_when_it_has_waited_for_flush_ms() -> None:
    site, log = _flushing(100)
    site.manager.flush_overdue(900)
    site.append(log)
    for now_ms, durable in [(1000, 0), (1099, 0), (1100, 1)]:
        site.manager.flush_overdue(now_ms)
        site.settle()
        assert log.durable_end_offset == durable


def test_flush_ms_restarts_after_each_sync() -> None:
    """Under load there is always an unsynced append; that must not mean a sync at every check."""
    site, log = _flushing(100)
    flushed_at = []
    for now_ms in range(1000, 1400, 10):
        site.append(log)
        before = log.durable_end_offset
        site.manager.flush_overdue(now_ms)
        site.settle()
        if log.durable_end_offset > before:
            flushed_at.append(now_ms)
    assert flushed_at == [1100, 1210, 1320]


@pytest.mark.parametrize("end", ["closed", "offline", "synced"])
def test_log_without_unflushed_appends_requests_no_sync(end: str) -> None:
    site, log = _flushing(100)
    site.append(log)
    log.flush_if_overdue(1000)
    if end == "closed":
        log.close()
    elif end == "offline":
        log.go_offline()
    else:
        log.request_sync()
        site.settle()
    log.flush_if_overdue(2000)
    log.flush_if_overdue(3000)
    assert site.ports.timers.next_due_ms is None


# -- the end ----------------------------------------------------------------------------------


def test_log_closed_durably_is_all_on_disk() -> None:
    for seed in range(5):
        site, log = _site(replace(CONFIG, flush_messages=1 << 60))
        for number in range(7):
            site.append(log, producer_id=7, producer_epoch=0, base_sequence=number)
        log.close_durably()
        assert (log.durable_end_offset, log.recovery_point, log.closed) == (7, 7, True)
        site.ports.jobs.forget_all()
        site = site.crash(seed)
        assert batch_offsets(site.log()) == list(range(7))
        assert 7 in site.listing(site.log(), ".snapshot")


def test_unchanged_log_is_closed_without_a_write() -> None:
    site, log = _site()
    site.create("t-1")
    site.append(log, producer_id=7, producer_epoch=0, base_sequence=0)
    site = site.restart()
    operations: list[str] = []
    site.files.on_operation = lambda operation: operations.append(operation.path)
    site = site.restart()
    assert [path for path in operations if "/t-" in path] == []
    assert site.log().producer_state.producers.keys() == {7}


def test_log_without_records_has_index_files_after_a_clean_stop() -> None:
    site, log = _site()
    assert site.listing(log, ".index") == []
    log.close_durably()
    assert site.listing(log, ".index") == site.listing(log, ".timeindex") == [0]


def test_log_without_records_is_closed_cleanly_on_a_full_disk() -> None:
    site, log = _site()
    site.files.fail_when(lambda operation: operation.name == "create", errno.ENOSPC)
    log.close_durably()
    assert (log.closed, site.listing(log, ".index")) == (True, [])
    site.files.fail_no_more()
    site = site.restart()
    assert site.reports == []
    site.append(site.log())


def test_log_that_lost_its_snapshot_gets_one_at_the_next_stop() -> None:
    site, log = _site()
    site.append(log)
    site = site.restart()
    site.files.unlink(site.path(site.log(), 1, ".snapshot"))
    site.log().close_durably()
    assert site.listing(log, ".snapshot") == [1]


def test_close_that_fails_is_raised_and_leaves_the_log_open() -> None:
    site, log = _site()
    site.append(log)
    site.files.fail_when(lambda operation: operation.name == "sync", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        log.close_durably()
    assert not log.closed
