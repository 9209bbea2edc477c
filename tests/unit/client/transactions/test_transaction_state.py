"""What may follow what in a producer's transactions, without a broker."""

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
    """Within a transaction; and how many new partitions there were each time it was told."""
    state = TransactionState("shop")
    told: list[int] = []
    state.on_new_partition = lambda: told.append(len(state.new_partitions))
    state.begin_init()
    state.initialized(OURS)
    state.begin(is_v2=is_v2)
    return state, told


def test_a_partition_waits_until_it_is_added_in_version_1() -> None:
    state, told = begun()
    assert not state.admits(FIRST)
    assert not state.admits(FIRST)
    assert not state.admits(SECOND)
    assert (told, state.new_partitions) == ([1, 2], [FIRST, SECOND])
    state.asking_to_add()
    assert state.begun is Begun.PERHAPS
    state.added([FIRST])
    assert state.begun is Begun.YES
    assert state.admits(FIRST)
    assert not state.admits(SECOND)
    assert state.new_partitions == [SECOND]


def test_a_partition_is_in_it_by_being_written_to_in_version_2() -> None:
    state, told = begun(is_v2=True)
    assert state.begun is Begun.NO
    assert state.admits(FIRST)
    assert state.begun is Begun.YES
    assert told == []


@pytest.mark.parametrize("is_v2", [False, True])
def test_the_next_transaction_begins_with_nothing(is_v2: bool) -> None:
    state, _ = begun(is_v2=is_v2)
    state.admits(FIRST)
    state.added([FIRST])
    state.needs_new_epoch = True
    state.begin_commit()
    assert state.admits(FIRST), "what there is still goes"
    state.ended(ProducerIdentity(7, 1))
    assert (state.phase, state.identity) == (Phase.READY, (7, 1))
    assert (state.begun, state.needs_new_epoch, state.new_partitions) == (Begun.NO, False, [])
    assert not state.admits(FIRST)
    state.begin(is_v2=False)
    assert not state.admits(FIRST)
    assert state.number == 2


def test_version_1_has_the_last_produce_before_version_2() -> None:
    for is_v2, highest, sent in ((False, 12, 11), (False, 9, 9), (True, 12, 12)):
        state, _ = begun(is_v2=is_v2)
        assert state.produce_version(highest) == sent


def test_a_spoiled_transaction_can_only_be_aborted() -> None:
    state, _ = begun()
    state.added([FIRST])
    state.spoil(InvalidRequest("the first reason"))
    state.spoil(InvalidRequest("another"))
    for call in (state.check_may_send, state.check_may_commit, state.check_may_begin):
        with pytest.raises(TransactionAbortable, match="the first reason") as told:
            call()
        assert isinstance(told.value.__cause__, InvalidRequest)
    assert not state.admits(FIRST)
    assert not state.may_retry
    state.begin_abort()
    state.spoil(InvalidRequest("too late"))
    assert state.phase is Phase.ABORTING
    state.ended(OURS)
    state.raise_error()
    state.check_may_begin()


def test_what_may_have_begun_needs_another_epoch_behind_its_abort() -> None:
    state, _ = begun()
    state.asking_to_add()
    state.begin_abort()
    assert state.needs_new_epoch


def test_nothing_follows_a_fatal_error() -> None:
    state, _ = begun()
    state.lose(ProducerFenced("by somebody"))
    state.lose(InvalidRequest("later"))
    state.spoil(InvalidRequest("later still"))
    for call in (state.check_may_send, state.begin_commit, state.begin_abort, state.begin_init):
        with pytest.raises(ProducerFenced, match="by somebody"):
            call()


def test_there_may_be_nothing_to_do_something_with() -> None:
    state = TransactionState("shop")
    for call in (state.check_may_send, state.begin_commit, state.begin_abort):
        with pytest.raises(IllegalState, match=r"shop.*init_transactions\(\) was not called yet"):
            call()
    state.begin_init()
    with pytest.raises(IllegalState, match="under way"):
        state.begin_init()
    state.init_failed()
    state.begin_init()


def test_a_send_that_failed_counts_for_its_own_transaction_only() -> None:
    state, _ = begun()
    state.send_failed(InvalidRequest("no record"))
    with pytest.raises(TransactionAbortable, match="no record"):
        state.begin_commit()
    state.begin_abort()
    state.ended(OURS)
    state.begin(is_v2=False)
    state.begin_commit()
