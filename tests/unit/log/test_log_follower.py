"""Appends of a follower: the leader's batches, their epochs and producers, and failures."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from plog.errors import CorruptMessage, KafkaStorageError
from plog.records.batch import iter_batches
from plog.records.builder import build_batch
from plog.records.codec import Record
from plogd.log.log import Log
from plogd.log.log_results import AppendInfo
from tests.helpers.log.log_data import T0, marker_batch
from tests.helpers.log.log_site import CONFIG, LogSite, base_offsets, batch_offsets, values

BIG = replace(CONFIG, segment_bytes=1 << 30)


def _batch(base_offset: int, count: int = 1, *, epoch: int = 0, **fields: Any) -> bytes:
    records = [Record(timestamp=T0 + base_offset, value=b"value %d" % base_offset)] * count
    return build_batch(records, base_offset=base_offset, partition_leader_epoch=epoch, **fields)


def _follow(log: Log, data: bytes, leader_epoch: int = 9) -> AppendInfo | None:
    return log.append_as_follower(memoryview(data), leader_epoch=leader_epoch, now_ms=T0)


def _site(config: Any = CONFIG, *, is_slow: bool = False) -> tuple[LogSite, Log]:
    site = LogSite().start()
    log = site.create("t-0", config)
    if is_slow:
        site.slow_down(site.create("u-0"))
    return site, log


def _lives(site: LogSite, log: Log) -> Iterator[Log]:
    """Yield the log, and then the log after a kill and recovery."""
    yield log
    yield site.kill().log()


@pytest.fixture(params=[False, True], ids=["inline", "by a job"])
def is_slow(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def test_batches_are_written_as_they_are(is_slow: bool) -> None:
    site, log = _site(BIG, is_slow=is_slow)
    data = _batch(0, 3) + _batch(3, epoch=2) + _batch(4, 2, epoch=5)
    info = _follow(log, data + _batch(6)[:70])
    assert info is not None
    assert (info.first_offset, info.last_offset) == (0, 5)
    site.settle()
    assert log.log_end_offset == log.durable_end_offset == 6
    assert site.files.read_file(site.path(log, 0)) == data
    assert log.leader_epochs.entries == ((0, 0), (2, 3), (5, 4))
    assert batch_offsets(log) == [0, 3, 4]


def test_nothing_to_append_leaves_the_log_unchanged() -> None:
    site, log = _site()
    state = site.state(log)
    for data in (b"", _batch(0)[:70], _batch(0, epoch=4)):
        assert _follow(log, data, leader_epoch=3) is None
    assert site.state(log) == state


def test_lookups_and_reads_work_across_gaps(is_slow: bool) -> None:
    """A leader's compaction leaves gaps, even inside the active segment of its follower."""
    site, log = _site(BIG, is_slow=is_slow)
    offsets = [0, 1, 7, 8, 9, 40, 41, 100]
    _follow(log, b"".join(map(_batch, offsets[:5])))
    _follow(log, b"".join(map(_batch, offsets[5:])))
    site.settle()
    assert log.log_end_offset == 101
    for one in _lives(site, log):
        for offset in range(101):
            assert batch_offsets(one, offset) == [at for at in offsets if at >= offset]
        segment = one.segments.active
        for offset, base_offset in ((2, 7), (8, 8), (10, 40), (42, 100)):
            place = segment.find_offset(offset)
            assert place is not None
            assert place.base_offset == base_offset


def test_batches_are_divided_among_segments(is_slow: bool) -> None:
    site, log = _site(is_slow=is_slow)
    offsets = list(range(40))
    _follow(log, b"".join(map(_batch, offsets)))
    site.settle()
    assert len(base_offsets(log)) == 4
    assert all(segment.size_bytes <= CONFIG.segment_bytes for segment in log.segments)
    for one in _lives(site, log):
        assert batch_offsets(one) == offsets


def test_batch_after_an_enormous_gap_begins_a_segment(is_slow: bool) -> None:
    """Index entries contain an int32 relative to the base offset of their segment."""
    site, log = _site(BIG, is_slow=is_slow)
    offsets = [0, 1, 2**31 + 50, 2**33, 2**33 + 1]
    _follow(log, b"".join(map(_batch, offsets)))
    site.settle()
    assert len(base_offsets(log)) == 3
    for one in _lives(site, log):
        assert one.log_end_offset == 2**33 + 2
        for offset, rest in ((0, offsets), (2, offsets[2:]), (2**32, offsets[3:])):
            assert batch_offsets(one, offset) == rest


def test_empty_log_may_begin_after_an_enormous_gap(is_slow: bool) -> None:
    site, log = _site(BIG, is_slow=is_slow)
    _follow(log, _batch(2**33))
    site.settle()
    for one in _lives(site, log):
        assert batch_offsets(one) == [2**33]


def test_follower_and_leader_appends_alternate(is_slow: bool) -> None:
    site, log = _site(is_slow=is_slow)
    for number in range(0, 12, 2):
        _follow(log, _batch(number), leader_epoch=number)
        site.settle()
        site.epoch = number + 1
        assert site.append(log).first_offset == number + 1
        site.settle()
    assert batch_offsets(log) == list(range(12))
    assert [entry.epoch for entry in log.leader_epochs.entries] == [0, 1, 3, 5, 7, 9, 11]


def test_records_after_a_gap_survive_a_kill_before_their_segment_is_sealed(is_slow: bool) -> None:
    """Recovery takes a gap between two segments for lost records."""
    site, log = _site(is_slow=is_slow)
    offsets = [*range(13), 20, 21]
    _follow(log, b"".join(map(_batch, offsets)))
    while log.durable_end_offset < 22:
        site.ports.timers.run_due()
        if site.ports.jobs.waiting:
            site.ports.jobs.run_one()
    assert base_offsets(log) == [0, 13]
    assert batch_offsets(site.kill().log()) == offsets


def test_batches_of_one_append_request_one_sync() -> None:
    site, log = _site(BIG)
    requests: list[int] = []
    request = log._rounds.request

    def count(log: Any, nbytes: int) -> None:
        requests.append(nbytes)
        request(log, nbytes)

    log._rounds.request = count  # type: ignore[method-assign]
    data = b"".join(map(_batch, range(20)))
    _follow(log, data)
    assert requests == [len(data)]
    site.settle()
    assert log.durable_end_offset == 20


# -- producers --------------------------------------------------------------------------------


def _sequence(base_offset: int, base_sequence: int, count: int = 1, **fields: Any) -> bytes:
    return _batch(
        base_offset,
        count,
        producer_id=7,
        producer_epoch=1,
        base_sequence=base_sequence,
        **fields,
    )


def test_producers_are_recorded_but_no_sequence_is_rejected(is_slow: bool) -> None:
    """The leader may have forgotten the producer, whose sequence then starts anywhere."""
    site, log = _site(is_slow=is_slow)
    _follow(log, _sequence(0, 5, 2) + _sequence(2, 90) + _sequence(3, 3))
    site.settle()
    assert log.producer_state.producers[7].last_sequence == 3
    retry = memoryview(bytearray(_sequence(0, 3)))
    info = log.append_as_leader(retry, leader_epoch=0, now_ms=T0)
    assert (info.duplicate, info.first_offset) == (True, 3)


def test_marker_ends_the_transaction_and_is_no_data(is_slow: bool) -> None:
    site, log = _site(is_slow=is_slow)
    _follow(log, _sequence(0, 0, is_transactional=True))
    site.settle()
    assert log.producer_state.producers[7].current_txn_first_offset == 0
    _follow(log, marker_batch(1))
    site.settle()
    for one in _lives(site, log):
        state = one.producer_state.producers[7]
        assert (state.current_txn_first_offset, state.coordinator_epoch) == (None, 4)
        assert (state.last_sequence, len(state.batches)) == (0, 1)


# -- failures ---------------------------------------------------------------------------------


def test_invalid_batch_rejects_the_whole_append(is_slow: bool) -> None:
    site, log = _site(is_slow=is_slow)
    _follow(log, _batch(0))
    site.settle()
    state = site.state(log)
    damaged = bytearray(_batch(1) + _batch(2))
    damaged[-1] ^= 1
    for data in (bytes(damaged), _batch(1) + _batch(1), _batch(0)):
        with pytest.raises(CorruptMessage):
            _follow(log, data)
        site.settle()
        assert site.state(log) == state
    _follow(log, _batch(1))
    site.settle()
    assert values(log) == {0: b"value 0", 1: b"value 1"}


@pytest.mark.parametrize("suffix", [".log", ".index"])
def test_failed_write_leaves_nothing_behind(suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plogd.log.segment.segment_indexes._FLUSH_BYTES", 1)
    site, log = _site(BIG)
    _follow(log, b"".join(map(_batch, range(4))))
    site.settle()
    state = site.state(log)
    site.files.fail_when(
        lambda operation: operation.name == "append" and operation.path.endswith(suffix),
        errno.ENOSPC,
    )
    data = b"".join(_batch(offset, epoch=offset) for offset in range(4, 40))
    with pytest.raises(KafkaStorageError, match="free space"):
        _follow(log, data, leader_epoch=40)
    assert site.state(log) == state
    site.files.fail_no_more()
    _follow(log, data, leader_epoch=40)
    site.settle()
    assert batch_offsets(log) == list(range(40))


def test_failed_write_by_a_job_is_reported_to_the_follower() -> None:
    site, log = _site(is_slow=True)
    site.files.fail_when(lambda operation: operation.name == "append", errno.ENOSPC)
    info = _follow(log, _batch(0) + _batch(1))
    site.settle()
    assert info is not None
    assert info.writing is not None
    assert isinstance(info.writing.error, KafkaStorageError)
    assert log.log_end_offset == 0
    site.files.fail_no_more()
    _follow(log, _batch(0) + _batch(1))
    site.settle()
    assert batch_offsets(log) == [0, 1]


def test_exception_while_a_batch_is_added_keeps_the_batches_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site, log = _site(BIG)
    update = log.producer_state.update

    def fail_once(header: Any, **how: Any) -> None:
        if header.base_offset == 2:
            raise MemoryError
        update(header, **how)

    monkeypatch.setattr(
        type(log.producer_state), "update", lambda _, *a, **how: fail_once(*a, **how)
    )
    data = b"".join(_sequence(offset, offset) for offset in range(4))
    with pytest.raises(MemoryError):
        _follow(log, data)
    monkeypatch.undo()
    assert log.log_end_offset == 2
    assert [
        header.base_offset for _, header in iter_batches(site.files.read_file(site.path(log, 0)))
    ] == [0, 1]
    _follow(log, _sequence(2, 2))
    site.settle()
    assert batch_offsets(log) == [0, 1, 2]


@pytest.mark.parametrize("end", ["close", "go_offline"])
def test_closed_log_rejects_batches(end: str) -> None:
    _, log = _site()
    getattr(log, end)()
    with pytest.raises(KafkaStorageError):
        _follow(log, _batch(0))
