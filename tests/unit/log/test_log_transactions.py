"""Transactions in a log: the last stable offset, and what read_committed consumers get."""

from __future__ import annotations

import errno
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plog.errors import InvalidProducerEpoch, KafkaStorageError, OffsetOutOfRange
from plogd.log import log_reader
from plogd.log.batch_validator import AppendOrigin
from plogd.log.log import Log
from plogd.log.segment.transaction_index import AbortedTransaction
from plogd.log.segment.uncached_lookup import UncachedLookup
from plogd.topic_config import TopicConfig
from tests.helpers.log.log_data import client_batch
from tests.helpers.log.log_site import CONFIG, LogSite, base_offsets
from tests.helpers.log.transactions import (
    ABORT,
    COMMIT,
    DATA,
    PLAIN,
    TransactionLog,
    marker_of,
    read_committed,
)
from tests.helpers.sim.sim_file import open_file

BIG = TopicConfig(retention_ms=-1, index_interval_bytes=150)
STEPS = (PLAIN, DATA, DATA, DATA, DATA, COMMIT, ABORT, ABORT)


def _new(
    config: TopicConfig = CONFIG, *, follows: bool = False, is_slow: bool = False
) -> TransactionLog:
    site = LogSite().start()
    log = TransactionLog(site, follows=follows)
    site.create("t-0", config)
    if is_slow:
        site.slow_down(site.create("u-0"))
    return log


@pytest.fixture(
    params=[(False, False), (True, False), (False, True), (True, True)],
    ids=["leader", "follower", "leader on a slow disk", "follower on a slow disk"],
)
def small(request: pytest.FixtureRequest) -> TransactionLog:
    """A log with segments of a few batches."""
    follows, is_slow = request.param
    return _new(follows=follows, is_slow=is_slow)


def _settle(one: TransactionLog) -> None:
    one.site.settle()
    one.check()


def _fill(one: TransactionLog, seed: int, count: int, producers: int = 3) -> None:
    chance = random.Random(seed)
    for _ in range(count):
        one.step(
            chance.choice(STEPS),
            chance.randrange(producers),
            chance.randrange(1, 4),
            bump=chance.random() < 0.3,
        )
        if chance.random() < 0.5 or one.follows:
            one.site.settle()


# -- one transaction --------------------------------------------------------------------------


def test_records_of_an_open_transaction_are_not_stable(small: TransactionLog) -> None:
    small.plain(2)
    small.data(7)
    small.plain()
    _settle(small)
    assert small.log.last_stable_offset == 2
    assert list(read_committed(small.log)) == [0, 1]


@pytest.mark.parametrize("kind", [COMMIT, ABORT])
def test_marker_makes_the_records_stable(small: TransactionLog, kind: str) -> None:
    small.data(7, 2)
    small.plain()
    small.step(kind, 7)
    _settle(small)
    assert small.log.last_stable_offset == 4
    assert list(read_committed(small.log)) == ([0, 1, 2] if kind == COMMIT else [2])


def test_marker_above_the_high_watermark_does_not_make_the_records_stable() -> None:
    one = _new()
    one.site.leads = False
    one.plain()
    one.data(7)
    one.abort(7)
    _settle(one)
    for high_watermark, stable_offset in ((0, 0), (1, 1), (2, 1), (3, 3)):
        one.log.high_watermark = high_watermark
        assert one.log.last_stable_offset == stable_offset
        one.check()


def test_read_beyond_the_last_stable_offset_returns_nothing() -> None:
    one = _new()
    one.data(7)
    _settle(one)
    data = one.log.read(0, 500, end_offset=one.log.last_stable_offset, read_committed=True)
    assert (data.region, data.aborted) == (None, ())
    with pytest.raises(OffsetOutOfRange):
        one.log.read(2, 500, end_offset=1, read_committed=True)


def test_uncommitted_reads_list_no_transactions() -> None:
    one = _new()
    one.data(7)
    one.abort(7)
    _settle(one)
    data = one.log.read(0, 500, end_offset=2)
    assert data.region is not None
    data.region.close()
    assert data.aborted == ()


def test_marker_without_a_transaction_aborts_nothing(small: TransactionLog) -> None:
    small.plain()
    small.abort(7)
    small.site.settle()
    small.data(7)
    small.commit(7)
    small.abort(7)  # A coordinator may repeat a marker, or send another one.
    small.abort(7)
    _settle(small)
    assert small.index_files() == {}
    assert list(read_committed(small.log)) == [0, 2]


def test_marker_in_a_new_epoch_ends_the_transaction(small: TransactionLog) -> None:
    small.data(7)
    small.abort(7, bump=True)
    small.site.settle()
    small.data(7)
    small.commit(7, bump=True)
    _settle(small)
    assert list(read_committed(small.log)) == [2]
    assert small.log.producer_state.producers[7].producer_epoch == 2


@pytest.mark.parametrize("is_slow", [False, True])
def test_producer_of_an_older_epoch_is_fenced_by_the_marker(is_slow: bool) -> None:
    """Otherwise, it would begin a transaction that no marker ends."""
    one = _new(is_slow=is_slow)
    one.data(7)
    one.abort(7, bump=True)
    with pytest.raises(InvalidProducerEpoch):
        one.site.append_batch(
            one.log,
            client_batch(producer_id=7, producer_epoch=0, base_sequence=1, is_transactional=True),
        )
    _settle(one)


@pytest.mark.parametrize("is_slow", [False, True])
def test_producer_may_continue_without_transactions_after_its_marker(is_slow: bool) -> None:
    one = _new(is_slow=is_slow)
    one.data(7)
    one.abort(7)
    batch = client_batch(producer_id=7, producer_epoch=0, base_sequence=1)
    assert one.site.append_batch(one.log, batch).first_offset == 2
    one.site.settle()
    assert list(read_committed(one.log)) == [2]


# -- several transactions and segments --------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_transactions_over_several_segments_are_filtered(small: TransactionLog, seed: int) -> None:
    _fill(small, seed, 60)
    small.site.settle()
    for producer_id in range(3):
        small.abort(producer_id)
    _settle(small)
    assert len(base_offsets(small.log)) > 5
    small.check_reads_from_every_offset()
    small.check_reads_from_every_offset(max_bytes=1)


def test_entries_belong_to_the_segments_of_their_markers(small: TransactionLog) -> None:
    _fill(small, 1, 60)
    _settle(small)
    small.log.segments.active.flush_indexes()
    assert small.index_files() == small.expected_index_files()
    assert len(small.index_files()) > 2


def test_transaction_that_is_open_over_many_segments_is_listed_everywhere(
    small: TransactionLog,
) -> None:
    small.data(9)
    _fill(small, 2, 40)
    small.data(9)
    small.abort(9)
    for producer_id in range(3):
        small.commit(producer_id)
    _settle(small)
    small.check_reads_from_every_offset()


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    producers=st.integers(1, 6),
    interval=st.sampled_from([1, 150, 1000, 1 << 20]),
    max_bytes=st.sampled_from([1, 200, 700, 1 << 20]),
    is_big=st.booleans(),
)
def test_any_read_returns_what_the_model_returns(
    seed: int, producers: int, interval: int, max_bytes: int, is_big: bool
) -> None:
    config = TopicConfig(
        retention_ms=-1,
        index_interval_bytes=interval,
        segment_bytes=1 << 20 if is_big else 1000,
    )
    one = _new(config, follows=seed % 2 == 1)
    _fill(one, seed, 40, producers)
    one.site.settle()
    one.check(max_bytes=max_bytes)
    one.check_reads_from_every_offset(max_bytes=max_bytes)


@pytest.mark.parametrize("limit", [1, 3, 10])
def test_read_with_too_many_aborted_transactions_returns_fewer_records(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_reader, "_MAX_ABORTED", limit)
    one = _new(BIG)
    one.data(100)  # Open during all others.
    for producer_id in range(40):
        one.data(producer_id)
        if producer_id % 3:
            one.abort(producer_id)
    for producer_id in (100, *range(0, 40, 3)):
        one.abort(producer_id)
    _settle(one)
    for max_bytes in (1, 500, 1 << 20):
        one.check(max_bytes=max_bytes)
        one.check_reads_from_every_offset(max_bytes=max_bytes)
    end_offset = one.log.last_stable_offset
    data = one.log.read(0, 1 << 20, end_offset=end_offset, read_committed=True)
    assert data.region is not None
    data.region.close()
    assert len(data.aborted) <= limit


def test_read_lists_at_most_a_thousand_short_transactions() -> None:
    one = _new(BIG)
    for sequence in range(1100):
        for batch, origin in (
            (
                client_batch(
                    producer_id=1,
                    producer_epoch=0,
                    base_sequence=sequence,
                    is_transactional=True,
                ),
                AppendOrigin.CLIENT,
            ),
            (marker_of(1, 0, commits=False), AppendOrigin.COORDINATOR),
        ):
            one.site.append_batch(one.log, batch, origin)
    one.site.append(one.log)
    one.site.settle()
    end_offset = one.log.last_stable_offset
    data = one.log.read(0, 1 << 30, end_offset=end_offset, read_committed=True)
    assert data.region is not None
    data.region.close()
    assert len(data.aborted) == 1000
    assert list(read_committed(one.log, max_bytes=1 << 30)) == [2200]


def test_cold_read_waits_in_jobs_and_returns_the_same() -> None:
    one = _new()
    _fill(one, 4, 60)
    for producer_id in range(3):
        one.abort(producer_id)
    one.continue_on(one.site.restart())
    one.site.files.everything_cached = False
    log, waits = one.log, 0
    for offset in range(log.last_stable_offset):
        _cool(one)
        while True:
            try:
                cold = _read(log, offset, nowait=True)
                break
            except UncachedLookup as error:
                error.warm()
                waits += 1
        assert cold == _read(log, offset, nowait=False)
    assert waits >= log.last_stable_offset
    one.check_reads_from_every_offset()


def _cool(one: TransactionLog) -> None:
    """Remove all files of a log from the page cache."""
    for segment in one.log.segments:
        for file in segment.sync_files():
            if file.is_open:
                open_file(file)._inode.is_warm = False


def _read(log: Log, offset: int, *, nowait: bool) -> tuple[bytes, list[AbortedTransaction]]:
    end_offset = log.last_stable_offset
    data = log.read(offset, 500, end_offset=end_offset, read_committed=True, nowait=nowait)
    assert data.region is not None
    payload = data.region.read()
    data.region.close()
    return payload, list(data.aborted)


# -- full disks -------------------------------------------------------------------------------


def _fill_disk(site: LogSite, *suffixes: str, name: str = "append") -> None:
    site.files.fail_when(
        lambda operation: operation.name == name and operation.path.endswith(suffixes),
        errno.ENOSPC,
    )


def test_marker_of_a_producer_whose_first_batch_was_rejected_can_be_appended() -> None:
    """The producer aborts its transaction instead of sending the batch again."""
    one = _new()
    _fill_disk(one.site, ".log")
    with pytest.raises(KafkaStorageError):
        one.data(7)
    one.site.files.fail_no_more()
    one.abort(7)
    one.data(7)
    one.commit(7)
    _settle(one)


@pytest.mark.parametrize("is_slow", [False, True])
def test_rejected_marker_does_not_prevent_the_first_batch_of_its_producer(is_slow: bool) -> None:
    one = _new(is_slow=is_slow)
    _fill_disk(one.site, ".log")
    batch = marker_of(7, 0, commits=False)
    if is_slow:
        one.site.append_batch(one.log, batch, AppendOrigin.COORDINATOR)
        one.site.settle()
    else:
        with pytest.raises(KafkaStorageError):
            one.site.append_batch(one.log, batch, AppendOrigin.COORDINATOR)
    one.site.files.fail_no_more()
    one.data(7)
    one.commit(7)
    _settle(one)


@pytest.mark.parametrize("name", ["append", "create"])
def test_rejected_marker_leaves_its_transaction_open(name: str) -> None:
    one = _new()
    one.data(7)
    one.plain()
    _settle(one)
    _fill_disk(one.site, ".log", ".txnindex", name=name)
    with pytest.raises(KafkaStorageError):
        one.abort(7)
    _settle(one)
    assert one.log.last_stable_offset == 0
    one.site.files.fail_no_more()
    one.abort(7)
    _settle(one)
    assert one.index_files() == {}, "the entry is only in memory"
    assert list(read_committed(one.log)) == [1]


def test_segment_is_not_rolled_without_its_index() -> None:
    one = _new()
    one.data(7)
    one.abort(7)
    _fill_disk(one.site, ".txnindex")
    rejected = 0
    for _ in range(20):
        rejected += not one.try_step(PLAIN, 0)
    assert rejected
    assert base_offsets(one.log) == [0]
    _settle(one)
    one.site.files.fail_no_more()
    for _ in range(20):
        one.plain()
    _settle(one)
    assert one.index_files() == one.expected_index_files()


def test_file_of_the_index_cannot_be_created_on_a_slow_disk() -> None:
    one = _new(is_slow=True)
    one.data(7)
    one.site.settle()
    _fill_disk(one.site, ".txnindex", name="create")
    info = one.site.append_batch(one.log, marker_of(7, 0, commits=False), AppendOrigin.COORDINATOR)
    one.site.settle()
    assert info.writing is not None
    assert isinstance(info.writing.error, KafkaStorageError)
    assert one.site.offline == []
    assert one.site.bugs == []
    one.site.files.fail_no_more()
    one.abort(7)
    _settle(one)


def test_clean_stop_writes_the_index_of_a_segment_whose_seal_has_failed() -> None:
    one = _new(is_slow=True)
    one.data(7)
    one.site.settle()
    _fill_disk(one.site, ".txnindex")
    with one.site.ports.turn:
        one.plain()
        one.abort(7)
        for _ in range(12):
            one.plain()
    one.site.settle()
    assert len(base_offsets(one.log)) > 1
    assert one.index_files() == {}
    one.site.files.fail_no_more()
    one.continue_on(one.site.restart())
    assert one.index_files() == one.expected_index_files() != {}
    _settle(one)
