"""FetchCollector hands out buffered records in the consuming thread."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from twisted.internet.task import Clock

from plog.client.consumer.completed_fetch import CompletedFetch, ReadingRules, split_batches
from plog.client.consumer.fetch_buffer import FetchBuffer
from plog.client.consumer.fetch_collector import FetchCollector
from plog.client.consumer.fetch_metrics import FetchMetrics
from plog.client.consumer.subscription_state import SubscriptionState
from plog.client.errors import CorruptRecords
from plog.client.network.twisted_network import DeferredNetwork
from plog.types import TopicPartition
from tests.unit.client.consumer.test_completed_fetch import batch, damaged

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Site:
    def __init__(self, **rules: Any) -> None:
        network = DeferredNetwork(Clock())  # type: ignore[arg-type]
        self.rules = ReadingRules(**rules)
        self.rooms = 0
        self.positions = SubscriptionState()
        self.positions.assign([T0, T1])
        self.positions.seek(T0, 0)
        self.positions.seek(T1, 0)
        self.buffer = FetchBuffer(self.positions)
        self.taking = FetchCollector(
            network,
            self.positions,
            self.buffer,
            FetchMetrics(network, self.positions),
            retry_s=1.0,
            on_room=self._room,
        )

    def _room(self) -> None:
        self.rooms += 1

    def fetch(self, *batches: bytes, of: TopicPartition = T0) -> None:
        """Buffer batches as a fetch at the partition's next offset would return them."""
        state = self.positions.states[of]
        split = split_batches(of, state.fetch_offset, b"".join(batches))
        fetched = CompletedFetch(of, state.fetch_offset, split, self.rules)
        self.buffer.add(state, state.generation, state.fetch_offset, split.next_offset, fetched)

    def offsets(self, count: int = 100) -> list[tuple[int, int]]:
        return [(x.partition, x.offset) for x in self.taking.take(count)]


def test_partitions_are_taken_in_order_of_arrival() -> None:
    site = Site()
    site.fetch(batch(0, 1))
    site.fetch(batch(0, 1), of=T1)
    site.fetch(batch(2))
    assert site.offsets(3) == [(0, 0), (0, 1), (1, 0)]
    assert site.offsets() == [(1, 1), (0, 2)]
    assert site.offsets() == []


def test_returned_list_belongs_to_caller() -> None:
    site = Site()
    site.fetch(batch(0, 1), batch(2, 3))
    first = site.taking.take(3)
    first.clear()
    assert site.offsets() == [(0, 3)]


def test_errors_precede_records_and_records_precede_corruption() -> None:
    site = Site()
    site.fetch(batch(0), damaged(1))
    site.fetch(batch(0), of=T1)
    site.positions.fail_all("x", ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        site.taking.take(9)
    assert site.offsets() == [(0, 0)]
    with pytest.raises(CorruptRecords):
        site.taking.take(9)
    assert site.offsets() == [(1, 0)]
    assert site.positions.position(T0) == 1


def test_seek_during_decoding_takes_precedence() -> None:
    site = Site(deserialize_value=lambda _: site.positions.seek(T0, 77))
    site.fetch(batch(0, 1))
    site.fetch(batch(0), of=T1)
    assert site.offsets() == [(1, 0)]
    assert site.positions.position(T0) == 77


def test_corruption_in_unassigned_partition_raises_nothing() -> None:
    def give_up(_: bytes) -> None:
        site.positions.assign([T1])
        raise ValueError

    site = Site(deserialize_value=give_up)
    site.fetch(batch(0, 1))
    assert site.offsets() == []


def test_engine_is_notified_of_room_when_requested() -> None:
    site = Site()
    site.fetch(batch(0, 1))
    site.fetch(batch(2))
    site.buffer.wants_room_notice = True
    site.offsets(1)
    assert site.rooms == 0
    site.offsets(1)
    assert site.rooms == 1
    site.offsets(1)
    assert site.rooms == 1


def test_poll_is_recorded_before_records_are_returned() -> None:
    site = Site()
    site.fetch(batch(0))
    seen: list[int | None] = []
    site.taking.on_poll = lambda: seen.append(site.positions.position(T0))
    site.offsets()
    assert seen == [0]
    assert not site.taking.has_data


def test_concurrent_seek_and_take_leave_no_gap_and_no_duplicate() -> None:
    """One thread fetches and sometimes seeks back, the other takes records without gaps."""
    site = Site()
    runs: list[list[int]] = [[]]
    ended = threading.Event()

    def fetch() -> None:
        for turn in range(3_000):
            if turn % 50 == 49:
                site.positions.seek(T0, turn % 7)
            begin = site.positions.states[T0].fetch_offset
            site.fetch(batch(*range(begin, begin + 3)))
        ended.set()

    engine = threading.Thread(target=fetch)
    engine.start()
    while not ended.is_set() or site.taking.has_data:
        for _, offset in site.offsets(5):
            if runs[-1] and offset != runs[-1][-1] + 1:
                assert offset <= 6, "only a seek may move the position back"
                runs.append([])
            runs[-1].append(offset)
    engine.join()
    last = site.positions.states[T0]
    assert last.position == last.fetch_offset == runs[-1][-1] + 1
    assert last.buffered_bytes == 0
