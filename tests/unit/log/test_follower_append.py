"""Appends of a follower whose empty log starts inside the first batch that it fetches."""

from __future__ import annotations

import pytest

from plog.errors import CorruptMessage, KafkaStorageError
from plog.records.builder import build_batch
from plog.records.codec import Record
from plogd.log.follower_append import append_or_restart
from plogd.log.log import Log
from plogd.log.replicated_batches import UnexpectedAppendOffset
from plogd.ports import Later, spawn
from tests.helpers.log.log_data import T0
from tests.helpers.log.log_site import LogSite, base_offsets, batch_offsets, four_segments, values
from tests.helpers.sim.sim_files import SimCrash


def _batch(base_offset: int, count: int = 5) -> bytes:
    records = [
        Record(timestamp=T0, value=b"value %d" % offset)
        for offset in range(base_offset, base_offset + count)
    ]
    return build_batch(
        records,
        base_offset=base_offset,
        partition_leader_epoch=0,
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
    )


def _append(log: Log, data: bytes) -> Later[object]:
    return spawn(append_or_restart(log, memoryview(data), leader_epoch=0, now_ms=T0))


@pytest.fixture(params=["new", "emptied", "slow"])
def empty(request: pytest.FixtureRequest) -> tuple[LogSite, Log]:
    """A site and its log, without records, that starts at offset 17."""
    if request.param == "emptied":
        site, log = four_segments()
        log.delete_records_before(17)
        site.settle()
        return site, log
    site = LogSite().start()
    log = site.create("t-0")
    site.settle(log.truncate_fully(17))
    if request.param == "slow":
        site.slow_down(site.create("u-0"))
    return site, log


def test_log_begins_at_the_base_offset_of_a_batch_that_contains_its_start(
    empty: tuple[LogSite, Log],
) -> None:
    site, log = empty
    site.settle(_append(log, _batch(15) + _batch(20)))
    site.settle()
    assert (log.log_start_offset, log.log_end_offset) == (15, 25)
    log.delete_records_before(17)  # The leader's log start offset.
    site.settle(site.manager.write_log_start_of(log))
    for life in ("this", "next"):
        one = log if life == "this" else site.kill().log()
        assert base_offsets(one) == [15]
        assert (one.log_start_offset, one.durable_end_offset) == (17, 25)
        assert batch_offsets(one, 17) == [15, 20]
        assert values(one)[17] == b"value 17"
        assert one.leader_epochs.entries == ((0, 17),)
        assert one.producer_state.producers[7].batches[-1].last_offset == 24
        segment = one.segments.active
        place = segment.find_offset(17)
        assert place is not None
        assert place.base_offset == 15


def test_power_loss_at_any_operation_leaves_an_empty_or_whole_log() -> None:
    finished, number = False, 0
    while not finished:
        number += 1
        for seed in range(4):
            site = LogSite().start()
            log = site.create("t-0")
            site.settle(log.truncate_fully(17))
            site.files.crash_at(site.files.operations + number)
            try:
                site.settle(_append(log, _batch(15)))
                site.settle()
                finished = True
            except SimCrash:
                pass
            site = site.crash(seed)
            log = site.log()
            ends = (log.log_start_offset, log.log_end_offset)
            assert ends in [(17, 17), (15, 15), (15, 20)]
            assert not [report for report in site.reports if "lost" in report]
            if log.log_end_offset < 20:
                site.settle(_append(log, _batch(15)))
                site.settle()
            assert batch_offsets(log) == [15]
    assert number > 10


@pytest.mark.parametrize("batch", [_batch(11), _batch(0, 3)])
def test_batch_below_the_start_is_rejected(empty: tuple[LogSite, Log], batch: bytes) -> None:
    site, log = empty
    with pytest.raises(CorruptMessage, match="must begin at or above offset 17"):
        site.settle(_append(log, batch))
    assert log.log_start_offset == log.log_end_offset == 17


def test_damaged_batch_does_not_restart_the_log(empty: tuple[LogSite, Log]) -> None:
    site, log = empty
    damaged = bytearray(_batch(15))
    damaged[-1] ^= 1
    with pytest.raises(CorruptMessage, match="checksum"):
        site.settle(_append(log, bytes(damaged)))
    assert log.log_start_offset == log.log_end_offset == 17


def test_log_with_records_is_not_restarted() -> None:
    site, log = four_segments()
    with pytest.raises(UnexpectedAppendOffset, match="offsets 15 to 19"):
        site.settle(_append(log, _batch(15)))
    assert batch_offsets(log) == list(range(17))


def test_closed_log_is_not_restarted(empty: tuple[LogSite, Log]) -> None:
    site, log = empty
    append = _append(log, _batch(15))
    log.close()
    with pytest.raises(KafkaStorageError):
        site.settle(append)
