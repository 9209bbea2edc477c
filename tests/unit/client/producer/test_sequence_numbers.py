"""Sequence numbers of an idempotent producer, batch by batch, without a broker."""

from __future__ import annotations

from plog.client.producer.sequence_numbers import (
    MAX_EPOCH,
    NO_SEQUENCE,
    PartitionSequences,
    ProducerIdentity,
    SequencedBatch,
)

OURS = ProducerIdentity(4000, 0)


class Batch(SequencedBatch):
    """The part of a batch that the rules use."""

    def __init__(self, count: int = 1) -> None:
        super().__init__()
        self._count = count

    @property
    def count(self) -> int:
        return self._count


Sequences = PartitionSequences[Batch]


def known() -> tuple[Sequences, Batch]:
    """Return the numbers of a producer that the broker knows, and its first, written batch."""
    sequences: Sequences = PartitionSequences()
    first = Batch()
    sequences.sent(first, OURS)
    sequences.written(first)
    return sequences, first


def send(sequences: Sequences, *counts: int) -> list[Batch]:
    """Return new batches with `counts` records, which are in flight."""
    batches = [Batch(count) for count in counts]
    for batch in batches:
        assert sequences.may_send(batch)
        sequences.sent(batch, OURS)
    return batches


def numbers(batch: Batch) -> tuple[int, int, int]:
    assert batch.identity is not None
    return (*batch.identity, batch.base_sequence)


def test_sequence_numbers_are_consecutive() -> None:
    sequences, first = known()
    second, third = send(sequences, 3, 1)
    assert [x.base_sequence for x in (first, second, third)] == [0, 1, 4]
    assert numbers(third) == (4000, 0, 4)


def test_sequence_numbers_wrap_around() -> None:
    sequences: Sequences = PartitionSequences()
    first = Batch(2**31 - 1)
    sequences.sent(first, OURS)
    sequences.written(first)
    second, third = send(sequences, 2, 1)
    assert (second.base_sequence, third.base_sequence) == (2**31 - 1, 1)


def test_first_batch_is_sent_alone_until_written() -> None:
    """A broker that does not know the producer accepts any number, also that of a later batch."""
    sequences: Sequences = PartitionSequences()
    [first] = send(sequences, 1)
    assert not sequences.may_send(Batch())
    first.refused()
    assert sequences.may_send(first)
    sequences.sent(first, OURS)
    sequences.written(first)
    assert sequences.may_send(Batch())


def test_window_is_limited_to_five_batches() -> None:
    sequences, _ = known()
    batches = send(sequences, 1, 1, 1, 1, 1)
    for batch in batches[1:]:
        sequences.written(batch)
    assert not sequences.may_send(Batch())
    sequences.written(batches[0])
    assert sequences.may_send(Batch())


def test_retries_keep_their_numbers_and_are_sent_alone_in_order() -> None:
    sequences, _ = known()
    first, second = send(sequences, 2, 2)
    first.unanswered()
    second.unanswered()
    assert sequences.may_send(first)
    assert not sequences.may_send(second)
    sequences.sent(first, OURS)
    assert first.base_sequence == 1
    assert not sequences.may_send(second)
    sequences.written(first)
    assert sequences.may_send(second)
    assert not sequences.is_broken


def test_out_of_order_after_refused_batch_is_only_retried() -> None:
    sequences, _ = known()
    refused, later = send(sequences, 1, 1)
    refused.refused()
    assert sequences.out_of_order(later)
    assert sequences.recover() == ([], [])
    sequences.sent(refused, OURS)
    sequences.written(refused)
    assert sequences.may_send(later)
    assert numbers(later) == (4000, 0, 2)


def test_missing_numbers_start_a_new_epoch() -> None:
    sequences, _ = known()
    refused, later, last = send(sequences, 1, 1, 1)
    refused.refused()
    sequences.give_up(refused)
    assert sequences.recover() == ([], [])  # Two are in flight.
    assert sequences.out_of_order(later)
    assert sequences.recover() == ([], [])
    assert sequences.out_of_order(last)
    assert not sequences.may_send(Batch())
    assert sequences.recover() == ([], [later, last])
    assert later.base_sequence == NO_SEQUENCE
    assert sequences.may_send(later)
    sequences.sent(later, OURS)
    assert numbers(later) == (4000, 1, 0)
    assert not sequences.may_send(last)  # The broker does not know the new epoch yet.


def test_numbers_continue_when_abandoned_batch_was_written() -> None:
    sequences, _ = known()
    lost, newest = send(sequences, 1, 1)
    lost.unanswered()
    sequences.give_up(lost)
    assert not sequences.may_send(Batch())
    sequences.written(newest)
    assert sequences.recover() == ([], [])
    [after] = send(sequences, 1)
    assert numbers(after) == (4000, 0, 3)


def test_abandoned_batch_in_flight_is_awaited() -> None:
    sequences, _ = known()
    [batch] = send(sequences, 1)
    sequences.give_up(batch)
    assert sequences.recover() == ([], [])
    assert sequences.is_broken
    sequences.written(batch)
    sequences.recover()
    [after] = send(sequences, 1)
    assert numbers(after) == (4000, 0, 2)


def test_abandoned_batch_without_response_starts_a_new_epoch() -> None:
    sequences, _ = known()
    [batch] = send(sequences, 1)
    sequences.give_up(batch)
    batch.unanswered()
    sequences.give_up(batch)
    sequences.recover()
    [after] = send(sequences, 1)
    assert numbers(after) == (4000, 1, 0)


def test_batch_in_doubt_is_never_renumbered() -> None:
    sequences, _ = known()
    [batch] = send(sequences, 1)
    batch.unanswered()
    sequences.sent(batch, OURS)
    assert not sequences.out_of_order(batch)
    assert sequences.recover() == ([batch], [])
    [after] = send(sequences, 1)
    assert numbers(after) == (4000, 1, 0)


def test_deferred_batches_are_written_when_a_later_one_is() -> None:
    """A restarted broker knows only the last batch, although all were written before."""
    sequences, _ = known()
    batches = send(sequences, 1, 1, 1)
    for batch in batches:
        batch.unanswered()
    first, second, last = batches
    for batch in (first, second):
        assert sequences.may_send(batch)
        sequences.sent(batch, OURS)
        assert not sequences.out_of_order(batch)
        assert sequences.recover() == ([], [])
    assert sequences.may_send(last)
    sequences.sent(last, OURS)
    assert sequences.written(last) == [first, second]
    assert sequences.recover() == ([], [])
    [after] = send(sequences, 1)
    assert numbers(after) == (4000, 0, 4)


def test_batches_after_unwritten_one_are_renumbered() -> None:
    sequences, _ = known()
    given_up, refused, in_doubt = send(sequences, 1, 1, 1)
    given_up.refused()
    sequences.give_up(given_up)
    sequences.out_of_order(refused)
    in_doubt.unanswered()
    assert sequences.recover() == ([], [refused, in_doubt])
    assert not in_doubt.in_doubt


def test_unknown_producer_starts_a_new_epoch() -> None:
    sequences, _ = known()
    [batch] = send(sequences, 2)
    assert sequences.unknown_producer(batch)
    assert sequences.recover() == ([], [batch])
    sequences.sent(batch, OURS)
    assert numbers(batch) == (4000, 1, 0)


def test_batch_in_doubt_is_not_retried_when_producer_is_unknown() -> None:
    sequences, _ = known()
    [batch] = send(sequences, 1)
    batch.unanswered()
    sequences.sent(batch, OURS)
    assert not sequences.unknown_producer(batch)


def test_fenced_producer_needs_another_id() -> None:
    sequences, _ = known()
    [batch] = send(sequences, 1)
    assert sequences.unknown_producer(batch, is_fenced=True)
    assert sequences.recover() == ([], [batch])
    assert (sequences.identity, sequences.past_producer_id) == (None, 4000)
    sequences.sent(batch, ProducerIdentity(4001, 0))
    assert numbers(batch) == (4001, 0, 0)


def test_another_id_is_needed_after_the_last_epoch() -> None:
    sequences: Sequences = PartitionSequences()
    batch = Batch()
    sequences.sent(batch, ProducerIdentity(4000, MAX_EPOCH))
    batch.refused()
    sequences.give_up(batch)
    sequences.recover()
    assert (sequences.identity, sequences.past_producer_id) == (None, 4000)


def test_parts_share_the_numbers_of_split_batch() -> None:
    sequences, _ = known()
    whole, later = send(sequences, 5, 1)
    parts = [Batch(2), Batch(3)]
    sequences.replace(whole, parts)
    assert [x.base_sequence for x in parts] == [1, 3]
    assert sequences.out_of_order(later)
    assert sequences.may_send(parts[0])
    assert not sequences.may_send(parts[1])
    for part in (*parts, later):
        assert sequences.may_send(part)
        sequences.sent(part, OURS)
        sequences.written(part)
    assert not sequences.is_broken
    assert numbers(later) == (4000, 0, 6)


def test_unsent_batch_leaves_no_gap() -> None:
    sequences, _ = known()
    sequences.give_up(Batch())
    assert not sequences.is_broken


# -- brokers that have lost all state -------------------------------------------------------------


def test_overtaken_batch_is_never_written_later() -> None:
    """A recreated topic accepts any number, also that of a batch after a refused one."""
    sequences, _ = known()
    refused, in_doubt, taken = send(sequences, 1, 1, 1)
    refused.refused()
    in_doubt.unanswered()
    assert sequences.overtaken(taken) == [refused]
    assert sequences.written(taken, 0) == []
    assert sequences.recover() == ([], [])  # Retries can still decide the batches in doubt.
    assert sequences.may_send(in_doubt)
    assert numbers(in_doubt) == (4000, 0, 2)
    sequences.sent(in_doubt, OURS)
    assert not sequences.out_of_order(in_doubt)
    assert sequences.recover() == ([in_doubt], [])
    [after] = send(sequences, 1)
    assert numbers(after) == (4000, 0, 4)


def test_batches_written_in_order_overtake_none() -> None:
    sequences, _ = known()
    first, second = send(sequences, 1, 1)
    assert sequences.overtaken(first) == []
    sequences.written(first)
    assert sequences.overtaken(second) == []


def test_deferred_batches_are_not_assumed_written_in_recreated_log() -> None:
    sequences, first = known()
    aside, last = send(sequences, 3, 1)
    for batch in (aside, last):
        batch.unanswered()
    sequences.written(first, 40)  # All batches up to it are before offset 41.
    sequences.sent(aside, OURS)
    assert not sequences.out_of_order(aside)
    sequences.sent(last, OURS)
    assert sequences.written(last, 43) == []  # There is no room for three records before it.
    assert sequences.recover() == ([aside], [])


def test_deferred_batches_are_written_when_offsets_leave_room() -> None:
    sequences, first = known()
    sequences.written(first, 40)
    aside, last = send(sequences, 3, 1)
    for batch in (aside, last):
        batch.unanswered()
    sequences.sent(aside, OURS)
    assert not sequences.out_of_order(aside)
    sequences.sent(last, OURS)
    assert sequences.written(last, 44) == [aside]


def test_first_batch_to_recreated_log_is_sent_alone() -> None:
    sequences, _ = known()
    [before] = send(sequences, 1)
    sequences.begin_unknown()
    after = Batch()
    assert not sequences.may_send(after)
    sequences.written(before)
    assert sequences.may_send(after)
    assert send(sequences, 1, 1)  # The broker knows the producer now.
