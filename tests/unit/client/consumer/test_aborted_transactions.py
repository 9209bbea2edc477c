"""Which batches read_committed leaves out, with batches built by hand."""

from __future__ import annotations

import pytest

from plog.client.consumer.aborted_transactions import AbortedTransactions, is_abort_marker
from plog.records.batch import CorruptBatch, iter_batches, parse_header
from plog.records.builder import build_batch
from plog.records.codec import Record
from plog.records.control import ControlType, encode_control_key, encode_end_txn_value
from plog.wire.messages.fetch import AbortedTransaction


def data(
    base_offset: int, producer_id: int, *, count: int = 1, is_transactional: bool = True
) -> bytes:
    return build_batch(
        [Record(timestamp=1, value=b"v")] * count,
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=is_transactional,
    )


def marker(base_offset: int, producer_id: int, kind: ControlType) -> bytes:
    key, value = encode_control_key(kind), encode_end_txn_value(0)
    return build_batch(
        [Record(timestamp=1, key=key, value=value)],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=0,
        is_transactional=True,
        is_control=True,
    )


def hidden(batches: list[bytes], *aborted: tuple[int, int]) -> list[int]:
    """Base offsets of what is not to be read; `aborted` are producer ids and first offsets."""
    told = [AbortedTransaction(producer_id=who, first_offset=first) for who, first in aborted]
    transactions = AbortedTransactions(told)
    joined = b"".join(batches)
    return [
        header.base_offset
        for position, header in iter_batches(joined)
        if transactions.covers(joined, position, header)
    ]


ABORT, COMMIT = ControlType.ABORT, ControlType.COMMIT


def test_an_aborted_transaction_is_left_out_and_the_next_of_its_producer_is_not() -> None:
    log = [data(0, 7), data(1, 7), marker(2, 7, ABORT), data(3, 7), marker(4, 7, COMMIT)]
    assert hidden(log, (7, 0)) == [0, 1]


def test_others_between_are_read() -> None:
    log = [
        data(0, 7),
        data(1, 8),
        data(2, 9, is_transactional=False),
        data(3, -1, is_transactional=False),
        marker(4, 8, COMMIT),
        data(5, 7),
        marker(6, 7, ABORT),
    ]
    assert hidden(log, (7, 0)) == [0, 5]


def test_a_transaction_that_began_before_the_fetch_is_known_by_its_first_offset() -> None:
    assert hidden([data(50, 7), marker(51, 7, ABORT), data(52, 7)], (7, 12)) == [50]


def test_a_producer_may_abort_twice() -> None:
    log = [data(0, 7), marker(1, 7, ABORT), data(2, 7), marker(3, 7, COMMIT), data(4, 7)]
    log += [marker(5, 7, ABORT), data(6, 7)]
    assert hidden(log, (7, 4), (7, 0)) == [0, 4]


def test_aborts_are_told_in_any_order_and_interleave() -> None:
    log = [data(0, 7), data(1, 8), marker(2, 7, ABORT), data(3, 8), data(4, 7)]
    log += [marker(5, 8, ABORT), data(6, 8), marker(7, 7, COMMIT)]
    assert hidden(log, (8, 1), (7, 0)) == [0, 1, 3]


def test_a_batch_whose_last_offset_reaches_the_transaction_is_part_of_it() -> None:
    assert hidden([data(10, 7, count=5)], (7, 12)) == [10]


def test_records_of_the_same_producer_outside_transactions_are_read() -> None:
    assert hidden([data(0, 7, is_transactional=False)], (7, 0)) == []


def test_a_commit_marker_ends_no_abort() -> None:
    """As in Kafka: the index of aborted transactions is right, whatever else the log holds."""
    assert hidden([data(0, 7), marker(1, 7, COMMIT), data(2, 7)], (7, 0)) == [0, 2]


def test_a_broken_marker_is_an_error() -> None:
    broken = bytearray(marker(0, 7, ABORT))
    broken[-8] = 0xFF
    with pytest.raises(CorruptBatch):
        hidden([data(0, 7), bytes(broken)], (7, 0))


def test_an_empty_control_batch_is_no_marker() -> None:
    whole = marker(0, 7, ABORT)
    header = parse_header(whole)._replace(records_count=0, batch_length=49)
    assert not is_abort_marker(whole[:61], 0, header)
