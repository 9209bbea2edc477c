"""Transactions in a log from which records are removed: retention, DeleteRecords, truncation."""

from __future__ import annotations

import errno
import random

import pytest

from plogd.topic_config import TopicConfig
from tests.helpers.log.log_site import CONFIG, LogSite, base_offsets
from tests.helpers.log.transactions import (
    ABORT,
    COMMIT,
    DATA,
    PLAIN,
    TransactionLog,
    read_committed,
    read_once,
)

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


# -- retention and record deletion ------------------------------------------------------------


def test_retention_keeps_everything_from_the_last_stable_offset_on() -> None:
    one = _new(TopicConfig(retention_ms=1, segment_bytes=1000, file_delete_delay_ms=0))
    for _ in range(30):
        one.plain()
    one.data(7)
    for _ in range(30):
        one.plain()
    one.site.settle()
    stable_offset = one.log.last_stable_offset
    one.log.apply_retention(one.site.ports.clock.now_ms() + 1_000_000)
    assert 0 < one.log.log_start_offset <= stable_offset == 30
    _settle(one)
    one.abort(7)
    one.site.settle()
    one.log.apply_retention(one.site.ports.clock.now_ms() + 1_000_000)
    assert one.log.log_start_offset > stable_offset
    _settle(one)


def test_retention_keeps_a_transaction_whose_marker_is_not_committed() -> None:
    one = _new(TopicConfig(retention_bytes=1, segment_bytes=500))
    one.site.leads = False
    one.data(7)
    for _ in range(20):
        one.plain()
    one.commit(7)
    one.site.settle()
    one.log.high_watermark = one.log.log_end_offset - 1
    one.log.apply_retention(one.site.ports.clock.now_ms())
    assert one.log.log_start_offset == 0
    one.log.high_watermark = one.log.log_end_offset
    one.log.apply_retention(one.site.ports.clock.now_ms())
    assert one.log.log_start_offset > 0


@pytest.mark.parametrize("kind", [COMMIT, ABORT])
@pytest.mark.parametrize("offset", range(1, 13))
def test_records_may_be_deleted_inside_an_open_transaction(offset: int, kind: str) -> None:
    one = _new()
    for _ in range(6):
        one.data(7)
        one.plain()
    _settle(one)
    one.log.delete_records_before(offset)
    assert one.log.last_stable_offset == offset
    _settle(one)
    one.data(7)
    one.step(kind, 7)
    _settle(one)
    one.check_reads_from_every_offset()
    one.site.settle(one.site.manager.write_log_starts())
    for life in (one.site.kill, lambda: one.site.restart()):
        one.continue_on(life())
        _settle(one)


def test_markers_can_be_appended_after_an_open_transaction_was_lost() -> None:
    """Its first records, and the snapshots that an index is rebuilt from, no longer exist."""
    one = _new()
    one.data(7)
    while len(base_offsets(one.log)) < 3:
        one.plain()
        one.site.settle()
    one.data(8)
    one.abort(8)
    one.site.settle()
    one.log.delete_records_before(base_offsets(one.log)[1])
    one.site.settle(one.site.manager.write_log_starts())
    one.site.ports.advance(10_000)
    one.site.settle()
    one.site.stop()
    files, snapshots = one.site.files, one.log.producer_state.snapshots
    for offset in snapshots.offsets()[:-1]:
        files.unlink(snapshots.path(offset))
    files.overwrite(one.site.path(one.log, base_offsets(one.log)[-1], ".txnindex"), b"\1")
    one.continue_on(one.site.kill())
    for producer_id in (8, 8, 7, 8, 7, 8):
        one.data(producer_id)
        one.abort(producer_id)
    one.plain()
    one.site.settle()
    assert read_committed(one.log) == one.model.committed(
        one.log.log_start_offset, one.model.end_offset
    )
    for offset in range(one.log.log_start_offset, one.model.end_offset):
        found, end = read_once(one.log, offset)
        assert found == one.model.committed(offset, end)


# -- truncation -------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_truncated_log_equals_one_to_which_the_rest_was_never_appended(
    small: TransactionLog, seed: int
) -> None:
    _fill(small, seed, 50)
    _settle(small)
    chance = random.Random(seed)
    for _ in range(8):
        offset = chance.randrange(small.log.log_end_offset + 1)
        small.site.settle(small.log.truncate_to(offset))
        small.model.cut(offset)
        _settle(small)
        small.log.segments.active.flush_indexes()
        assert small.index_files() == small.expected_index_files()
        _fill(small, seed, 6)
        _settle(small)
    small.check_reads_from_every_offset()


@pytest.mark.parametrize("kind", [COMMIT, ABORT])
def test_transaction_is_open_again_when_its_marker_is_removed(kind: str) -> None:
    one = _new()
    one.plain()
    one.data(7)
    one.plain()
    one.step(kind, 7)
    _settle(one)
    one.site.settle(one.log.truncate_to(3))
    one.model.cut(3)
    assert one.log.last_stable_offset == 1
    _settle(one)
    one.abort(7)
    _settle(one)
    assert list(read_committed(one.log)) == [0, 2]


def test_transaction_is_open_again_even_if_its_producer_has_expired() -> None:
    one = _new()
    one.plain()
    one.data(7)
    one.commit(7)
    _settle(one)
    one.log.producer_state.remove_expired(0)
    one.log.producer_state.remove_expired(1 << 50)
    assert one.log.producer_state.producers == {}
    one.site.settle(one.log.truncate_to(2))
    one.model.cut(2)
    assert one.log.last_stable_offset == 1
    _settle(one)


def test_producer_is_known_after_a_truncation_even_if_its_segments_were_deleted() -> None:
    """Otherwise, a batch that it sends again would be appended twice."""
    one = _new()
    for producer_id in (7, 8):
        one.data(producer_id)
        one.abort(7)
    with one.site.ports.turn:  # No seal writes a snapshot.
        while len(base_offsets(one.log)) < 3:
            one.plain()
        one.continue_on(one.site.kill())
    one.site.settle()
    start = base_offsets(one.log)[1]
    one.log.delete_records_before(start)
    one.site.settle(one.log.truncate_to(start))
    one.model.cut(start)
    producers = one.log.producer_state.producers
    assert {at: (s.last_sequence, s.current_txn_first_offset) for at, s in producers.items()} == {
        7: (0, None),
        8: (0, 2),
    }
    assert one.log.last_stable_offset == start


def test_transaction_is_unknown_when_its_beginning_is_removed() -> None:
    one = _new()
    one.plain()
    one.data(7)
    one.abort(7)
    _settle(one)
    one.site.settle(one.log.truncate_to(1))
    one.model.cut(1)
    assert one.log.last_stable_offset == 1
    one.plain()
    one.abort(7)
    _settle(one)
    assert list(read_committed(one.log)) == [0, 1]


def test_truncation_above_the_high_watermark_keeps_completed_transactions_unstable() -> None:
    one = _new(follows=True)
    one.site.leads = False
    one.data(7)
    one.plain()
    one.commit(7)
    one.plain()
    one.site.settle()
    one.log.high_watermark = 2
    _settle(one)
    one.site.settle(one.log.truncate_to(3))
    one.model.cut(3)
    assert one.log.last_stable_offset == 0
    _settle(one)


def test_removed_marker_is_not_stable_while_the_truncation_is_in_progress() -> None:
    one = _new()
    one.plain()
    one.data(7)
    one.plain()
    one.commit(7)
    _settle(one)
    later = one.log.truncate_to(3)
    while one.site.ports.jobs.waiting:
        assert one.log.last_stable_offset <= 1
        one.site.ports.jobs.run_one()
        one.site.ports.timers.run_due()
    one.site.settle(later)
    assert one.log.last_stable_offset == 1


def test_log_that_begins_again_has_no_transactions() -> None:
    one = _new()
    _fill(one, 1, 30)
    one.data(8)
    _settle(one)
    one.site.settle(one.log.truncate_fully(500))
    assert one.log.last_stable_offset == 500
    assert one.index_files() == {}
    one.site.append(one.log)
    one.site.settle()
    assert list(read_committed(one.log)) == [500]


def test_truncation_writes_the_index_of_a_segment_whose_seal_has_failed() -> None:
    one = _new()
    one.site.slow_down(one.site.create("u-0"))
    one.data(7)
    one.site.settle()
    one.site.files.fail_when(
        lambda operation: operation.name == "append" and operation.path.endswith(".txnindex"),
        errno.ENOSPC,
    )
    with one.site.ports.turn:
        one.plain()
        one.abort(7)
        for _ in range(12):
            one.plain()
    one.site.settle()
    one.site.files.fail_no_more()
    offset = base_offsets(one.log)[1] + 1
    one.site.settle(one.log.truncate_to(offset))
    one.model.cut(offset)
    one.site.write_checkpoints()
    one.continue_on(one.site.crash(1))
    one.check()
    assert one.index_files() == one.expected_index_files() != {}
