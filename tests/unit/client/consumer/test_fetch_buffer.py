"""The buffer between the engine and the consuming thread."""

from __future__ import annotations

import math

from plog.client.consumer.completed_fetch import CompletedFetch, ReadingRules, split_batches
from plog.client.consumer.fetch_buffer import Buffered, FetchBuffer
from plog.client.consumer.subscription_state import SubscriptionState
from plog.types import TopicPartition
from tests.unit.client.consumer.test_completed_fetch import batch, damaged

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Site:
    def __init__(self) -> None:
        self.positions = SubscriptionState()
        self.positions.assign([T0, T1])
        self.positions.seek(T0, 0)
        self.positions.seek(T1, 0)
        self.buffer = FetchBuffer(self.positions)

    def add(
        self, *batches: bytes, at: int = 0, of: TopicPartition = T0, generation: int | None = None
    ) -> bool:
        state = self.positions.states[of]
        data = b"".join(batches)
        split = split_batches(of, at, data)
        fetched = CompletedFetch(of, at, split, ReadingRules())
        wanted = state.generation if generation is None else generation
        return self.buffer.add(state, wanted, at, split.next_offset, fetched)

    def first(self) -> Buffered:
        found = self.buffer.first()
        assert found is not None
        return found


def test_taking_moves_position_and_frees_bytes() -> None:
    site = Site()
    whole = batch(0, 1, partition_leader_epoch=3)
    assert site.add(whole)
    state = site.positions.states[T0]
    assert (state.position, state.fetch_offset, state.buffered_bytes) == (0, 2, len(whole))
    one = site.first()
    one.fetched.take(1)
    assert site.buffer.took(one)
    assert (state.position, state.position_epoch, state.buffered_bytes) == (1, 3, len(whole))
    one.fetched.take(9)
    assert site.buffer.took(one)
    assert (state.position, state.buffered_bytes, len(site.buffer)) == (2, 0, 0)


def test_fetches_of_a_partition_are_taken_in_order() -> None:
    site = Site()
    assert site.add(batch(0))
    assert site.add(batch(1), at=1)
    assert not site.add(batch(1), at=1)
    assert not site.add(batch(0), at=0)
    assert len(site.buffer) == 2


def test_fetch_from_before_a_seek_is_dropped() -> None:
    site = Site()
    generation = site.positions.states[T0].generation
    site.positions.seek(T0, 0)
    assert not site.add(batch(0), generation=generation)
    assert site.buffer.first() is None


def test_seek_drops_buffered_records_even_during_decoding() -> None:
    site = Site()
    site.add(batch(0, 1, 2))
    one = site.first()
    one.fetched.take(2)
    site.positions.seek(T0, 40)
    assert not site.buffer.took(one)
    assert site.positions.position(T0) == 40
    assert site.buffer.first() is None
    assert len(site.buffer) == 0


def test_unassigned_partition_is_dropped() -> None:
    site = Site()
    site.add(batch(0))
    site.add(batch(0), of=T1)
    site.positions.assign([T1])
    assert site.first().state.partition == T1
    assert len(site.buffer) == 1


def test_paused_partition_keeps_its_place_without_blocking_others() -> None:
    site = Site()
    site.add(batch(0))
    site.add(batch(0), of=T1)
    site.positions.pause([T0])
    one = site.first()
    assert one.state.partition == T1
    one.fetched.take(9)
    assert site.buffer.took(one)
    assert site.buffer.first() is None
    site.positions.resume([T0])
    assert site.first().state.partition == T0


def test_corrupt_data_is_fetched_again_after_delay() -> None:
    site = Site()
    site.add(batch(0), damaged(1))
    site.add(batch(2), at=2)
    one = site.first()
    one.fetched.take(9)
    assert site.buffer.took(one)
    assert site.buffer.failed(one, 99.0)
    state = site.positions.states[T0]
    assert (state.position, state.fetch_offset, state.retry_at_s) == (1, 1, 99.0)
    assert len(site.buffer) == 0
    assert not site.buffer.failed(one, 99.0)


def test_nothing_is_fetched_past_invalid_bytes() -> None:
    site = Site()
    site.add(batch(0), bytes(70))
    assert site.positions.states[T0].retry_at_s == math.inf


def test_partition_with_new_data_moves_to_end_of_fetch_order() -> None:
    site = Site()
    site.add(batch(0))
    assert list(site.positions.states) == [T1, T0]


def test_success_clears_error() -> None:
    site = Site()
    state = site.positions.states[T0]
    site.positions.fail(state, state.generation, ValueError())
    site.add(batch(0))
    assert not site.positions.has_error


def test_room_notice_is_returned_once() -> None:
    site = Site()
    assert not site.buffer.pop_room_notice()
    site.buffer.wants_room_notice = True
    assert site.buffer.pop_room_notice()
    assert not site.buffer.pop_room_notice()
