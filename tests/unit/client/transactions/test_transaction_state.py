"""The order of calls in transactions, without a broker."""

from __future__ import annotations

import pytest

from plog.client.errors import IllegalState
from plog.client.producer.sequence_numbers import ProducerIdentity
from plog.client.transactions.transaction_state import Begun, Phase, TransactionState
from plog.errors import InvalidRequest, ProducerFenced, TransactionAbortable
from plog.types import TopicPartition

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
OURS = ProducerIdentity(7, 0)


def begun(*, is_v2: bool = False) -> tuple[TransactionState, list[int]]:
    """Begin a transaction; also return the number of new partitions at each notification."""
    state = TransactionState("shop")
    notified: list[int] = []
    state.on_new_partition = lambda: notified.append(len(state.new_partitions))
    state.begin_init()
    state.initialized(OURS)
    state.begin(is_v2=is_v2)
    return state, notified


def test_partition_waits_until_added_in_version_1() -> None:
    state, notified = begun()
    assert not state.admits(FIRST)
    assert not state.admits(FIRST)
    assert not state.admits(SECOND)
    assert (notified, state.new_partitions) == ([1, 2], [FIRST, SECOND])
    state.begin_adding()
    assert state.begun is Begun.PERHAPS
    state.added([FIRST])
    assert state.begun is Begun.YES
    assert state.admits(FIRST)
    assert not state.admits(SECOND)
    assert state.new_partitions == [SECOND]


def test_partition_is_added_by_writing_in_version_2() -> None:
    state, notified = begun(is_v2=True)
    assert state.begun is Begun.NO
    assert state.admits(FIRST)
    assert state.begun is Begun.YES
    assert notified == []


@pytest.mark.parametrize("is_v2", [False, True])
def test_next_transaction_starts_empty(is_v2: bool) -> None:
    state, _ = begun(is_v2=is_v2)
    state.admits(FIRST)
    state.added([FIRST])
    state.needs_new_epoch = True
    state.begin_commit()
    assert state.admits(FIRST), "partitions of the transaction may still send"
    state.ended(ProducerIdentity(7, 1))
    assert (state.phase, state.identity) == (Phase.READY, (7, 1))
    assert (state.begun, state.needs_new_epoch, state.new_partitions) == (Begun.NO, False, [])
    assert not state.admits(FIRST)
    state.begin(is_v2=False)
    assert not state.admits(FIRST)
    assert state.number == 2


def test_version_1_uses_last_produce_version_without_implicit_add() -> None:
    for is_v2, highest, sent in ((False, 12, 11), (False, 9, 9), (True, 12, 12)):
        state, _ = begun(is_v2=is_v2)
        assert state.produce_version(highest) == sent


def test_failed_transaction_can_only_be_aborted() -> None:
    state, _ = begun()
    state.added([FIRST])
    state.fail_transaction(InvalidRequest("the first reason"))
    state.fail_transaction(InvalidRequest("another"))
    for call in (state.check_may_send, state.check_may_commit, state.check_may_begin):
        with pytest.raises(TransactionAbortable, match="the first reason") as notified:
            call()
        assert isinstance(notified.value.__cause__, InvalidRequest)
    assert not state.admits(FIRST)
    assert not state.may_retry
    state.begin_abort()
    state.fail_transaction(InvalidRequest("too late"))
    assert state.phase is Phase.ABORTING
    state.ended(OURS)
    state.raise_error()
    state.check_may_begin()


def test_abort_of_possibly_begun_transaction_needs_new_epoch() -> None:
    state, _ = begun()
    state.begin_adding()
    state.begin_abort()
    assert state.needs_new_epoch


def test_fatal_error_is_final() -> None:
    state, _ = begun()
    state.fail_producer(ProducerFenced("by another producer"))
    state.fail_producer(InvalidRequest("later"))
    state.fail_transaction(InvalidRequest("later still"))
    for call in (state.check_may_send, state.begin_commit, state.begin_abort, state.begin_init):
        with pytest.raises(ProducerFenced, match="by another producer"):
            call()


def test_calls_out_of_order_raise_illegal_state() -> None:
    state = TransactionState("shop")
    for call in (state.check_may_send, state.begin_commit, state.begin_abort):
        with pytest.raises(IllegalState, match=r"shop.*init_transactions\(\) has not been called"):
            call()
    state.begin_init()
    with pytest.raises(IllegalState, match="in progress"):
        state.begin_init()
    state.init_failed()
    state.begin_init()


def test_failed_send_affects_only_its_transaction() -> None:
    state, _ = begun()
    state.send_failed(InvalidRequest("no record"))
    with pytest.raises(TransactionAbortable, match="no record"):
        state.begin_commit()
    state.begin_abort()
    state.ended(OURS)
    state.begin(is_v2=False)
    state.begin_commit()
