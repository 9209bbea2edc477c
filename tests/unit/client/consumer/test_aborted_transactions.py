"""AbortedTransactions finds the batches that read_committed skips, here in handmade batches."""

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
    """Return base offsets of hidden batches; `aborted` has producer ids and first offsets."""
    listed = [AbortedTransaction(producer_id=who, first_offset=first) for who, first in aborted]
    transactions = AbortedTransactions(listed)
    joined = b"".join(batches)
    return [
        header.base_offset
        for position, header in iter_batches(joined)
        if transactions.covers(joined, position, header)
    ]


ABORT, COMMIT = ControlType.ABORT, ControlType.COMMIT


def test_only_aborted_transaction_of_producer_is_skipped() -> None:
    log = [data(0, 7), data(1, 7), marker(2, 7, ABORT), data(3, 7), marker(4, 7, COMMIT)]
    assert hidden(log, (7, 0)) == [0, 1]


def test_batches_of_other_producers_are_read() -> None:
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


def test_transaction_that_began_before_fetch_is_skipped() -> None:
    assert hidden([data(50, 7), marker(51, 7, ABORT), data(52, 7)], (7, 12)) == [50]


def test_two_aborts_of_a_producer_are_skipped() -> None:
    log = [data(0, 7), marker(1, 7, ABORT), data(2, 7), marker(3, 7, COMMIT), data(4, 7)]
    log += [marker(5, 7, ABORT), data(6, 7)]
    assert hidden(log, (7, 4), (7, 0)) == [0, 4]


def test_interleaved_aborts_may_be_listed_in_any_order() -> None:
    log = [data(0, 7), data(1, 8), marker(2, 7, ABORT), data(3, 8), data(4, 7)]
    log += [marker(5, 8, ABORT), data(6, 8), marker(7, 7, COMMIT)]
    assert hidden(log, (8, 1), (7, 0)) == [0, 1, 3]


def test_batch_that_overlaps_first_offset_is_skipped() -> None:
    assert hidden([data(10, 7, count=5)], (7, 12)) == [10]


def test_non_transactional_batches_of_producer_are_read() -> None:
    assert hidden([data(0, 7, is_transactional=False)], (7, 0)) == []


def test_commit_marker_does_not_end_an_abort() -> None:
    """As in Kafka, the index of aborted transactions takes precedence over markers in the log."""
    assert hidden([data(0, 7), marker(1, 7, COMMIT), data(2, 7)], (7, 0)) == [0, 2]


def test_corrupt_marker_is_an_error() -> None:
    broken = bytearray(marker(0, 7, ABORT))
    broken[-8] = 0xFF
    with pytest.raises(CorruptBatch):
        hidden([data(0, 7), bytes(broken)], (7, 0))


def test_empty_control_batch_is_not_a_marker() -> None:
    whole = marker(0, 7, ABORT)
    header = parse_header(whole)._replace(records_count=0, batch_length=49)
    assert not is_abort_marker(whole[:61], 0, header)
