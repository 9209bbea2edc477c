"""Which batches and markers belong to aborted transactions, or to no batch at all."""

from __future__ import annotations

from plog.records.batch import BatchHeader, parse_header
from plog.records.control import ControlType, read_markers
from plogd.log.compaction.cleaned_transactions import CleanedTransactions
from plogd.log.segment.transaction_index import AbortedTransaction
from tests.helpers.log.log_data import client_batch, marker_batch

ABORT, COMMIT = ControlType.ABORT, ControlType.COMMIT


def _data(offset: int, producer_id: int = 7, *, is_transactional: bool = True) -> BatchHeader:
    batch = client_batch(
        producer_id=producer_id, producer_epoch=1, is_transactional=is_transactional
    )
    return parse_header(batch)._replace(base_offset=offset)


def _aborted(first_offset: int, last_offset: int, producer_id: int = 7) -> AbortedTransaction:
    return AbortedTransaction(producer_id, first_offset, last_offset, last_offset + 1)


def _end(
    transactions: CleanedTransactions, offset: int, kind: ControlType, producer_id: int = 7
) -> bool:
    batch = marker_batch(offset, kind, producer_id=producer_id)
    header = parse_header(batch)
    return transactions.is_marker_unused(header, list(read_markers(batch, header)))


def test_records_without_a_transaction_are_not_aborted() -> None:
    transactions = CleanedTransactions([_aborted(0, 9)])
    assert not transactions.is_aborted(_data(1, is_transactional=False))
    assert not transactions.is_aborted(_data(2, -1, is_transactional=False))


def test_only_the_batches_between_first_offset_and_marker_are_aborted() -> None:
    transactions = CleanedTransactions([_aborted(5, 8)])
    assert not transactions.is_aborted(_data(0))
    assert not _end(transactions, 2, COMMIT)
    assert transactions.is_aborted(_data(5))
    assert transactions.is_aborted(_data(7))
    assert not _end(transactions, 8, ABORT)
    assert not transactions.is_aborted(_data(9))
    assert not _end(transactions, 10, COMMIT)


def test_transactions_of_several_producers_may_overlap() -> None:
    transactions = CleanedTransactions([_aborted(0, 6, 1), _aborted(1, 5, 2)])
    assert transactions.is_aborted(_data(0, 1))
    assert transactions.is_aborted(_data(1, 2))
    assert not transactions.is_aborted(_data(2, 3))
    assert not _end(transactions, 3, COMMIT, 3)
    assert not _end(transactions, 5, ABORT, 2)
    assert not transactions.is_aborted(_data(5, 2)), "the next transaction of producer 2"
    assert not _end(transactions, 6, ABORT, 1)


def test_producer_may_abort_several_transactions() -> None:
    transactions = CleanedTransactions([_aborted(10, 12), _aborted(0, 2), _aborted(5, 7)])
    for first_offset in (0, 5, 10):
        assert transactions.is_aborted(_data(first_offset))
        assert not _end(transactions, first_offset + 2, ABORT)
        assert not transactions.is_aborted(_data(first_offset + 3))
        assert not _end(transactions, first_offset + 4, COMMIT)


def test_transaction_may_begin_before_the_first_batch() -> None:
    transactions = CleanedTransactions([_aborted(3, 120)])
    assert transactions.is_aborted(_data(100))
    assert not _end(transactions, 120, ABORT)


def test_batch_that_begins_before_the_first_offset_belongs_to_the_transaction() -> None:
    """Kafka compares the last offset, because the first records of a batch may be missing."""
    transactions = CleanedTransactions([_aborted(5, 20)])
    header = _data(4)._replace(last_offset_delta=3)
    assert transactions.is_aborted(header)


def test_marker_without_batches_is_unused() -> None:
    transactions = CleanedTransactions([_aborted(3, 8)])
    assert _end(transactions, 1, COMMIT)
    assert _end(transactions, 8, ABORT)
    assert transactions.take_kept() == []


def test_marker_is_used_only_by_the_batches_since_the_last_marker() -> None:
    transactions = CleanedTransactions([_aborted(10, 11)])
    assert not transactions.is_aborted(_data(0))
    assert not _end(transactions, 1, COMMIT)
    assert _end(transactions, 5, COMMIT)
    assert transactions.is_aborted(_data(10))
    assert not _end(transactions, 11, ABORT)
    assert _end(transactions, 12, ABORT)


def test_marker_is_not_used_by_batches_outside_of_transactions() -> None:
    transactions = CleanedTransactions([])
    transactions.is_aborted(_data(0, is_transactional=False))
    assert _end(transactions, 1, COMMIT)


def test_index_gets_the_aborted_transactions_with_batches_in_the_order_of_their_markers() -> None:
    long, short, empty = _aborted(0, 9, 1), _aborted(1, 5, 2), _aborted(2, 6, 3)
    transactions = CleanedTransactions([long, short, empty])
    transactions.is_aborted(_data(0, 1))
    transactions.is_aborted(_data(1, 2))
    _end(transactions, 5, ABORT, 2)
    assert _end(transactions, 6, ABORT, 3)
    _end(transactions, 9, ABORT, 1)
    assert transactions.take_kept() == [short, long]
    assert transactions.take_kept() == []


def test_other_control_records_are_used() -> None:
    transactions = CleanedTransactions([])
    batch = marker_batch(4, ControlType.LEADER_CHANGE, producer_id=-1)
    header = parse_header(batch)
    assert not transactions.is_marker_unused(header, list(read_markers(batch, header)))


def test_control_batch_without_its_record_is_unused() -> None:
    transactions = CleanedTransactions([])
    header = parse_header(marker_batch(4))._replace(records_count=0)
    assert transactions.is_marker_unused(header, [])
