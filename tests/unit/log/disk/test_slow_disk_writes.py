"""Appends to a slow directory: prepared immediately, written by jobs, failed with the disk."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from plog.errors import KafkaError, KafkaStorageError, OutOfOrderSequenceNumber
from plogd.log.log import Log
from plogd.log.log_results import AppendInfo
from plogd.log.producer_snapshot import decode_snapshot
from plogd.log.segment import segment_indexes
from plogd.log.segment.segment_indexes import SegmentIndexes
from plogd.ports import failed
from plogd.topic_config import TopicConfig
from tests.helpers.log.log_data import client_batch
from tests.helpers.log.log_site import CONFIG, LogSite, base_offsets, batch_offsets, values
from tests.helpers.sim.sim_file import open_file

LANE = "dir:/a"
BIG = TopicConfig(retention_ms=-1)


def _slow_site(config: TopicConfig = CONFIG, **settings: Any) -> tuple[LogSite, Log]:
    """A log with one record at offset 0, in a directory that has just become slow."""
    site = LogSite(**settings).start()
    log = site.create("t-0", config)
    site.slow_down(log)
    return site, log


def _error(info: AppendInfo) -> KafkaError | None:
    assert info.writing is not None
    return info.writing.error


def _is_written(info: AppendInfo) -> bool:
    assert info.writing is not None
    return info.writing.is_written


def _no_room(site: LogSite, suffix: str = "") -> None:
    site.files.fail_when(
        lambda operation: operation.name == "append" and operation.path.endswith(suffix),
        errno.ENOSPC,
    )


# -- prepare and write ------------------------------------------------------------------------


def test_reactor_stops_writing_after_a_slow_write() -> None:
    site = LogSite().start()
    log = site.create("t-0")
    site.files.append_ms = lambda path: 25.0
    assert site.append(log).writing is None
    before = site.ports.clock.monotonic_ms()
    info = site.append(log)
    assert info.writing is not None
    assert site.ports.clock.monotonic_ms() == before, "the second write has not waited"


def test_prepared_batch_has_offsets_but_is_not_readable() -> None:
    site, log = _slow_site()
    state = site.state(log)
    first, second = site.append(log, 3), site.append(log, 2)
    assert (first.first_offset, first.last_offset) == (1, 3)
    assert (second.first_offset, second.last_offset) == (4, 5)
    assert site.state(log) == state
    assert log.high_watermark == log.durable_end_offset == 1
    site.settle()
    assert log.log_end_offset == log.high_watermark == 6
    assert batch_offsets(log) == [0, 1, 4]


def test_batches_prepared_during_a_write_are_written_by_the_next() -> None:
    site, log = _slow_site(BIG)
    appends = [site.append(log) for _ in range(4)]
    site.ports.jobs.run_one(LANE)
    assert [_is_written(info) for info in appends] == [True, False, False, False]
    assert log.log_end_offset == 2
    site.ports.jobs.run_one(LANE)
    assert all(_is_written(info) for info in appends)
    assert log.log_end_offset == 5


def test_written_batches_are_readable_only_after_the_outcome_of_their_job() -> None:
    site, log = _slow_site(BIG)
    site.append(log)
    writing = log._lane
    assert writing is not None
    writing._write(list(writing._group), log.segments.active, log.config)
    assert log.segments.active.size_bytes > writing.written_bytes
    for _ in range(2):
        data = log.read(0, 1 << 20, end_offset=log.log_end_offset)
        assert data.nbytes == writing.written_bytes
        assert data.region is not None
        data.region.close()
        ticket = log.begin_sync()  # Which records the log end for later reads.
        assert ticket is not None
        assert ticket.end_offset == 1
        ticket.release()


def test_prepared_batch_is_a_copy() -> None:
    site, log = _slow_site()
    batch = client_batch(value=b"precious")
    log.append_as_leader(batch, leader_epoch=0, now_ms=site.ports.clock.now_ms())
    batch[:] = b"\xee" * len(batch)
    site.settle()
    assert values(log)[1] == b"precious"


def test_job_rolls_full_segments_with_snapshots_as_of_the_roll() -> None:
    site, log = _slow_site()
    for number in range(12):
        site.append(log, value=b"." * 200, producer_id=7, producer_epoch=0, base_sequence=number)
    site.settle()
    assert base_offsets(log) == site.listing(log) == [0, 4, 7, 10]
    assert batch_offsets(log) == list(range(13))
    assert log.recovery_point == 10
    site.forget("recovery-point-offset-checkpoint")
    site = site.kill()
    again = site.log()
    assert batch_offsets(again) == list(range(13))
    assert again.producer_state.producers[7].last_sequence == 11


def test_snapshot_excludes_batches_written_after_it() -> None:
    site, log = _slow_site()
    for number in range(6):
        site.append(log, value=b"." * 300, producer_id=7, producer_epoch=0, base_sequence=number)
    site.settle()
    offsets = log.producer_state.snapshots.offsets()
    assert len(offsets) > 1
    for offset in offsets:
        snapshot = site.files.read_file(log.producer_state.snapshots.path(offset))
        [producer] = decode_snapshot(snapshot)
        assert producer.last_offset == offset - 1


def test_retention_rolls_by_a_job_and_deletes_in_its_next_pass() -> None:
    site, log = _slow_site(TopicConfig(retention_ms=1000))
    site.ports.clock.advance_to(5000)
    now_ms = site.ports.clock.now_ms() + 5000
    site.manager.apply_retention(now_ms)
    assert base_offsets(log) == [0]
    site.settle()
    assert base_offsets(log) == [0, 1]
    site.manager.apply_retention(now_ms)
    assert base_offsets(log) == [1]


def test_after_30_quiet_seconds_the_reactor_writes_again() -> None:
    site, log = _slow_site()
    site.append(log)
    site.settle()
    site.ports.advance(31_000)
    assert site.append(log).writing is not None, "the disk has not been checked yet"
    site.settle()
    assert site.append(log).writing is None
    assert log.log_end_offset == 4


def test_later_write_does_not_overtake_one_in_progress() -> None:
    site, log = _slow_site()
    site.append(log)
    site.manager.dirs.writes_of("/a").is_slow = False
    assert site.append(log).writing is not None
    site.settle()
    assert site.append(log).writing is None
    assert batch_offsets(log, end_offset=4) == [0, 1, 2, 3]


# -- producers --------------------------------------------------------------------------------


def _of_producer(site: LogSite, log: Log, sequence: int) -> AppendInfo:
    return site.append(log, producer_id=7, producer_epoch=0, base_sequence=sequence)


def test_sequences_count_from_the_moment_a_batch_is_prepared() -> None:
    site, log = _slow_site()
    _of_producer(site, log, 0)
    _of_producer(site, log, 1)
    with pytest.raises(OutOfOrderSequenceNumber):
        _of_producer(site, log, 3)
    _of_producer(site, log, 2)
    assert 7 not in log.producer_state.producers
    site.settle()
    assert log.producer_state.producers[7].last_sequence == 2


def test_duplicate_succeeds_or_fails_with_the_original() -> None:
    site, log = _slow_site()
    first = _of_producer(site, log, 0)
    again = _of_producer(site, log, 0)
    assert again.duplicate
    assert again.first_offset == first.first_offset
    assert again.writing is first.writing
    site.settle()
    assert _of_producer(site, log, 0).writing is None, "the batch is in the log by then"


def test_refused_batch_and_its_successors_may_be_retried() -> None:
    site, log = _slow_site()
    _of_producer(site, log, 0)
    site.settle()
    lost = [_of_producer(site, log, 1), _of_producer(site, log, 2)]
    _no_room(site)
    site.settle()
    assert all(_error(info) for info in lost)
    site.files.fail_no_more()
    with pytest.raises(OutOfOrderSequenceNumber):
        _of_producer(site, log, 2)
    retried = [_of_producer(site, log, 1), _of_producer(site, log, 2)]
    assert [info.first_offset for info in retried] == [2, 3]
    assert not any(info.duplicate for info in retried)
    site.settle()
    assert batch_offsets(log) == [0, 1, 2, 3]


# -- failures ---------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex"])
def test_full_disk_refuses_prepared_batches_completely(
    suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_indexes, "_FLUSH_BYTES", 1)
    site, log = _slow_site()
    site.fill(log, 2)
    site.settle()
    state = site.state(log)
    lost = [site.append(log, value=b"." * 200) for _ in range(3)]
    _no_room(site, suffix)
    site.settle()
    for info in lost:
        assert "t-0: cannot append in /a: [Errno 28] No space left on device" in str(_error(info))
        assert site.path(log, 0, suffix) in str(_error(info))
    assert site.state(log) == state
    assert site.offline == []
    site.files.fail_no_more()
    assert site.append(log).first_offset == 3
    site.settle()
    assert batch_offsets(log) == [0, 1, 2, 3]


def test_batches_written_before_the_disk_was_full_are_in_the_log() -> None:
    site, log = _slow_site(BIG)
    appends = [site.append(log, value=b"." * 100) for _ in range(4)]
    site.ports.jobs.run_one(LANE)
    site.files.capacity_bytes = site.files.used_bytes + 250
    site.settle()
    assert [_is_written(info) for info in appends] == [True, True, False, False]
    assert [_error(info) is not None for info in appends] == [False, False, True, True]
    assert batch_offsets(log) == [0, 1, 2]


def test_roll_on_a_full_disk_refuses_its_batch() -> None:
    site, log = _slow_site()
    site.fill(log, 4)
    site.settle()
    site.files.fail_when(lambda operation: operation.name == "create", errno.ENOSPC)
    info = site.append(log, value=b"." * 600)
    site.settle()
    assert _error(info) is not None
    assert base_offsets(log) == site.listing(log) == [0]
    site.files.fail_no_more()
    site.append(log, value=b"." * 600)
    site.settle()
    assert base_offsets(log) == [0, 5]


def test_new_segment_stays_when_its_batch_is_refused() -> None:
    site, log = _slow_site()
    site.fill(log, 4)
    site.settle()
    _no_room(site, "5.log")
    info = site.append(log, value=b"." * 600)
    site.settle()
    assert _error(info) is not None
    assert base_offsets(log) == [0, 5]
    site.files.fail_no_more()
    site.append(log)
    site.settle()
    assert batch_offsets(log) == list(range(6))


def test_failed_write_takes_the_directory_offline_and_is_reported() -> None:
    site, log = _slow_site()
    lost = [site.append(log), site.append(log)]
    site.files.fail_when(lambda operation: operation.name == "append", errno.EIO)
    site.settle()
    assert all(_error(info) for info in lost)
    assert site.offline == ["/a"]
    assert log.log_end_offset == 1


def test_partial_batch_that_cannot_be_removed_takes_the_directory_offline() -> None:
    site, log = _slow_site()
    info = site.append(log)
    site.files.fail_when(lambda operation: operation.name in ("append", "truncate"), errno.ENOSPC)
    site.settle()
    assert _error(info) is not None
    assert site.offline == ["/a"]


def test_write_that_ends_after_its_directory_went_offline_is_ignored() -> None:
    site, log = _slow_site()
    info = site.append(log)
    site.manager.storage_failed("/a", OSError(errno.EIO, "gone"))
    site.settle()
    assert "is offline" in str(_error(info))
    assert log.log_end_offset == 1


def test_unexpected_error_of_a_write_refuses_it_and_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site, log = _slow_site()
    before = site.state(log)
    with monkeypatch.context() as patched:
        patched.setattr(SegmentIndexes, "add", _broken)
        refused = [_send(site, log, number) for number in range(2)]
        site.settle()
    assert site.state(log) == before
    assert [type(_error(info)) for info in refused] == [KafkaError, KafkaError]
    assert [type(error) for error in site.bugs] == [ZeroDivisionError]
    assert site.offline == []
    with pytest.raises(OutOfOrderSequenceNumber):
        _send(site, log, 1)
    _send(site, log, 0)
    site.settle()
    assert batch_offsets(site.kill().log()) == [0, 1]


def test_unexpected_error_of_a_roll_refuses_the_batch_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site, log = _slow_site()
    site.fill(log, 4)
    site.settle()
    before = site.state(log)
    with monkeypatch.context() as patched:
        patched.setattr(SegmentIndexes, "make_files", _broken)
        site.fill(log, 1, 600)
        site.settle()
    assert site.state(log) == before
    assert site.listing(log) == [0]
    site.fill(log, 2, 600)
    site.settle()
    assert batch_offsets(site.kill().log()) == list(range(7))


def test_write_job_that_never_ran_takes_the_directory_offline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site, log = _slow_site()
    submit = site.ports.jobs.submit
    monkeypatch.setattr(
        site.ports.jobs,
        "submit",
        lambda lane, job: failed(RuntimeError("no thread")) if lane == LANE else submit(lane, job),
    )
    info = site.append(log)
    site.settle()
    assert _error(info) is not None
    assert site.offline == ["/a"]
    assert [str(error) for error in site.bugs] == ["no thread"]


def test_batch_that_cannot_join_the_log_takes_the_directory_offline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site, log = _slow_site()
    info = site.append(log)
    monkeypatch.setattr(type(log), "appended", _broken)
    site.settle()
    assert isinstance(_error(info), KafkaStorageError)
    assert site.offline == ["/a"]
    assert log.log_end_offset == 1


def _send(site: LogSite, log: Log, sequence: int) -> AppendInfo:
    return site.append(log, producer_id=7, producer_epoch=0, base_sequence=sequence)


def _broken(*_: object, **__: object) -> None:
    raise ZeroDivisionError


# -- the end ----------------------------------------------------------------------------------


def test_log_may_be_deleted_during_a_write() -> None:
    site, log = _slow_site()
    info = site.append(log, value=b"." * 900)
    site.append(log)
    file = open_file(log.segments.active.records_file)
    site.delete("t-0")
    site.settle()
    assert _error(info) is not None
    assert not file.is_open
    again = site.create("t-0")
    assert site.append(again).first_offset == 0
    site.settle()
    assert batch_offsets(again) == [0]


@pytest.mark.parametrize("flush_messages", [1, 1000])
def test_clean_stop_waits_for_all_prepared_batches(flush_messages: int) -> None:
    site, log = _slow_site(TopicConfig(retention_ms=-1, flush_messages=flush_messages))
    for _ in range(5):
        site.append(log)
    site = site.restart()
    assert batch_offsets(site.log()) == list(range(6))
    assert site.manager.dirs["/a"].was_clean


def test_unwritten_bytes_count_as_unsynced_ones() -> None:
    site, log = _slow_site(BIG, plog_unsynced_max_bytes=1000)
    [rounds] = site.manager.sync_rounds
    site.append(log, value=b"." * 600)
    assert rounds.has_room
    site.append(log, value=b"." * 600)
    assert not rounds.has_room
    room = rounds.room()
    site.settle()
    assert room.done


@pytest.mark.parametrize("is_full", [False, True])
def test_append_that_waited_for_room_may_go_to_the_same_log(is_full: bool) -> None:
    site, log = _slow_site(BIG, plog_unsynced_max_bytes=1000)
    [rounds] = site.manager.sync_rounds
    for _ in range(3):
        site.append(log, value=b"." * 600)
    later: list[AppendInfo] = []
    rounds.room().then(lambda _: later.append(site.append(log)), lambda error: None)
    if is_full:
        _no_room(site)
    while not later:
        site.ports.jobs.run_one()
        site.ports.timers.run_due()
    site.files.fail_no_more()
    site.settle()
    assert _is_written(later[0])
    assert log.log_end_offset == later[0].last_offset + 1 == (2 if is_full else 5)
    assert rounds.idle().done
    assert log._lane is None


@pytest.mark.parametrize("seed", range(20))
def test_power_loss_keeps_a_prefix_of_the_prepared_batches(seed: int) -> None:
    site, log = _slow_site()
    infos = [site.append(log, value=b"." * 300) for _ in range(8)]
    for _ in range(seed % 4):
        if site.ports.jobs.waiting:
            site.ports.jobs.run_one()
            site.ports.timers.run_due()
    durable = log.durable_end_offset
    site = site.crash(seed)
    found = batch_offsets(site.log())
    assert found == list(range(len(found)))
    assert len(found) >= durable
    assert len(found) <= 1 + len(infos)
