"""Sequence numbers within transactions: only the coordinator changes the epoch."""

from __future__ import annotations

from plog.client.producer.sequence_numbers import ProducerIdentity
from plog.client.transactions.transaction_sequences import TransactionSequences
from plog.client.transactions.transaction_state import TransactionState
from plog.types import TopicPartition
from tests.unit.client.producer.test_sequence_numbers import Batch

OURS = ProducerIdentity(7, 3)


def begun() -> tuple[TransactionSequences[Batch], TransactionState]:
    state = TransactionState("shop")
    state.initialized(OURS)
    state.begin(is_v2=True)
    return TransactionSequences(TopicPartition("orders", 0), state), state


def sent(sequences: TransactionSequences[Batch], batch: Batch) -> Batch:
    assert sequences.may_send(batch)
    assert sequences.identity is not None
    sequences.sent(batch, sequences.identity)
    return batch


def test_numbers_continue_within_an_epoch_and_restart_in_the_next() -> None:
    sequences, state = begun()
    for number in range(2):
        batch = sent(sequences, Batch())
        assert (batch.identity, batch.base_sequence) == (OURS, number)
        sequences.written(batch)
        state.ended(OURS)
        state.begin(is_v2=True)
    state.ended(ProducerIdentity(7, 4))
    state.begin(is_v2=True)
    batch = sent(sequences, Batch())
    assert (batch.identity, batch.base_sequence) == ((7, 4), 0)


def test_nothing_is_sent_outside_a_transaction() -> None:
    sequences, state = begun()
    state.begin_abort()
    assert not sequences.may_send(Batch())


def test_out_of_order_batch_fails_and_none_is_renumbered() -> None:
    sequences, _ = begun()
    sequences.written(sent(sequences, Batch()))
    first, second = sent(sequences, Batch()), sent(sequences, Batch())
    assert sequences.out_of_order(second), "the batch before it may still be written"
    assert not sequences.out_of_order(first)
    assert sequences.recover() == ([first], [])
    assert sequences.recover() == ([], [])
    assert not sequences.may_send(second)
    assert not sequences.may_send(Batch())


def test_batch_of_unknown_producer_fails() -> None:
    sequences, state = begun()
    batch = sent(sequences, Batch())
    assert not sequences.unknown_producer(batch)
    sequences.give_up(batch)
    assert not sequences.may_send(Batch())
    state.ended(ProducerIdentity(7, 4))
    state.begin(is_v2=True)
    assert sequences.may_send(Batch())
