"""Accumulator: batches, memory, and wakeups of the engine."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest

from plog.client.producer.accumulator import Accumulator
from plog.client.producer.producer_batch import RECORD_OVERHEAD, ProducerBatch, SendHandle
from plog.records.batch import HEADER_SIZE
from plog.types import TopicPartition

TOPIC = "t"
SIZE = 100
"""The size of each record in this file."""


class Site:
    """An accumulator with a clock, and the checks of the engine."""

    def __init__(self, partitions: int = 1, **options: Any) -> None:
        self.now_s = 0.0
        self.chance = 0.0
        self.wakes = 0
        arguments = {
            "batch_size": HEADER_SIZE + 3 * SIZE,
            "buffer_memory": 10_000,
            "linger_s": 0.005,
            "now_s": lambda: self.now_s,
            "random": lambda: self.chance,
            "wake": self.wake,
        }
        self.accumulator: Accumulator[SendHandle] = Accumulator(SendHandle, **arguments | options)
        self.accumulator.update_topic(TOPIC, partitions, range(partitions))

    def wake(self) -> None:
        self.wakes += 1

    def append(self, partition: int | None = 0, key: bytes | None = None) -> SendHandle | None:
        value = b"x" * (SIZE - RECORD_OVERHEAD)
        return self.accumulator.append(TOPIC, partition, 0, key, value, (), SIZE)

    def fill(self, count: int, **options: Any) -> None:
        for _ in range(count):
            assert self.append(**options) is not None

    def look(self) -> list[tuple[int, int]]:
        """Return partition and record count of every waiting batch; schedule the next check."""
        self.accumulator.begin_check()
        found = [
            (queue.topic_partition.partition, batch.count)
            for queue in self.accumulator.waiting
            for batch in queue.batches
        ]
        self.accumulator.end_check(self.now_s + self.accumulator._linger_s if found else 1e9)
        self.wakes = 0
        return found

    def take(self) -> ProducerBatch:
        return self.accumulator.take(next(iter(self.accumulator.waiting)))


def test_batch_holds_as_many_records_as_fit() -> None:
    site = Site()
    site.fill(7)
    assert site.look() == [(0, 3), (0, 3), (0, 1)]


def test_taken_batch_accepts_no_records() -> None:
    site = Site()
    site.fill(1)
    batch = site.take()
    site.fill(1)
    assert batch.count == 1
    assert site.look() == [(0, 1)]


def test_records_wait_when_topic_or_partition_is_unknown() -> None:
    site = Site()
    assert site.append(partition=1) is None
    assert site.accumulator.append("other", 0, 0, None, b"v", (), SIZE) is None
    site.accumulator.update_topic(TOPIC, 2, [0, 1])
    assert site.append(partition=1) is not None


def test_first_record_and_full_batch_wake_engine() -> None:
    site = Site()
    site.look()
    wakes = []
    for _ in range(8):
        site.fill(1)
        wakes.append(site.wakes)
        site.look()
    assert wakes == [1, 0, 0, 1, 0, 0, 1, 0]


def test_engine_is_woken_once_until_it_checks() -> None:
    site = Site()
    site.look()
    site.fill(50)
    assert site.wakes <= 2  # For the first record, and for a full batch, which must not wait.


def test_engine_is_woken_for_batch_due_before_next_check() -> None:
    site = Site()
    site.accumulator.begin_check()
    site.accumulator.end_check(10.0)  # For example, because a retry is due then.
    site.fill(1)
    assert site.wakes == 1


def test_engine_is_not_woken_when_no_broker_accepts_requests() -> None:
    site = Site()
    site.accumulator.begin_check()
    site.accumulator.end_check(0.0)
    site.fill(10)
    assert site.wakes == 0
    site.look()
    site.fill(3)
    assert site.wakes == 1


def test_record_added_during_check_wakes_engine_again() -> None:
    site = Site()
    site.fill(1)
    site.accumulator.begin_check()
    site.wakes = 0
    site.fill(4)
    site.accumulator.end_check(10.0)
    assert site.wakes == 1


def test_memory_is_reserved_until_batch_has_outcome() -> None:
    site = Site(buffer_memory=2 * (HEADER_SIZE + 3 * SIZE))
    site.fill(6)
    assert site.append() is None
    assert not site.accumulator.has_room()
    batch = site.take()
    assert site.append() is None
    site.accumulator.free(batch)
    site.accumulator.forget(batch)
    assert site.accumulator.has_room()
    site.fill(3)
    assert site.append() is None


def test_full_batch_wakes_engine_when_memory_is_exhausted() -> None:
    site = Site(buffer_memory=HEADER_SIZE + 3 * SIZE)
    site.fill(3)
    site.look()
    assert site.append() is None
    assert site.wakes == 1


def test_record_larger_than_buffer_is_accepted_when_buffer_is_empty() -> None:
    site = Site(buffer_memory=50)
    assert site.append() is not None


def test_has_room_considers_the_last_refused_record() -> None:
    site = Site(buffer_memory=2_000)
    site.fill(1)
    assert site.accumulator.append(TOPIC, 0, 0, None, b"", (), 1_800) is None
    assert not site.accumulator.has_room()
    site.accumulator.free(site.take())
    assert site.accumulator.has_room()


def test_records_without_key_stick_to_partition_until_batch_is_full() -> None:
    site = Site(partitions=3)
    for chance in (0.0, 0.5, 0.9):
        site.chance = chance
        site.fill(3, partition=None)
    assert sorted(site.look()) == [(0, 3), (1, 3), (2, 3)]


def test_partial_batches_count_together_for_sticky_partition() -> None:
    site = Site(partitions=2)
    for _ in range(2):  # Both together are more than a batch holds.
        site.fill(2, partition=None)
        assert site.take().topic_partition == TopicPartition(TOPIC, 0)
    site.chance = 0.9
    site.fill(1, partition=None)
    assert site.take().topic_partition == TopicPartition(TOPIC, 1)


def test_key_chooses_partition_unless_keys_are_ignored() -> None:
    site = Site(partitions=12)
    site.fill(1, partition=None, key=b"foobar")
    assert site.look() == [(6, 1)]
    site = Site(partitions=12, ignore_keys=True)
    site.fill(1, partition=None, key=b"foobar")
    assert site.look() == [(0, 1)]


def test_idle_topic_is_forgotten_but_not_its_sequence_numbers() -> None:
    site = Site()
    site.fill(1)
    batch = site.take()
    queue = site.accumulator.queue_of(batch)
    site.now_s = 100.0
    site.accumulator.forget_idle_topics(200.0)
    assert site.accumulator.knows(TOPIC, 0)
    site.accumulator.forget_idle_topics(50.0)
    assert site.append() is None
    site.accumulator.update_topic(TOPIC, 1, [0])
    site.fill(1)
    assert site.accumulator.queue_of(site.take()) is queue


def test_topic_with_queued_batches_is_not_forgotten() -> None:
    site = Site()
    site.fill(1)
    site.now_s = 100.0
    site.accumulator.forget_idle_topics(50.0)
    assert site.append() is not None


def test_recreated_topic_gets_records_only_for_its_partitions() -> None:
    site = Site(partitions=3)
    site.accumulator.update_topic(TOPIC, 1, [0])
    for number in range(20):
        assert site.append(None, key=b"%d" % number) is not None
    assert {partition for partition, _ in site.look()} == {0}
    assert site.append(2) is None


def test_parts_of_split_batch_keep_its_age_order() -> None:
    site = Site()
    site.fill(6)
    first, second = list(site.accumulator.incomplete)
    [queue] = site.accumulator.waiting
    site.accumulator.take(queue)
    site.accumulator.take(queue)
    site.accumulator.replace(second, second.split(200))
    assert site.accumulator.oldest() is first


def test_queues_are_served_in_rotation() -> None:
    site = Site(partitions=3)
    for partition in (0, 1, 2, 0, 1, 2):
        site.fill(3, partition=partition)
    taken = [site.take().topic_partition.partition for _ in range(6)]
    assert taken == [0, 1, 2, 0, 1, 2]


def test_closed_accumulator_refuses_records() -> None:
    site = Site()
    site.fill(1)
    site.accumulator.close()
    assert site.append() is None
    assert site.append(partition=None) is None
    assert site.take().is_urgent


@pytest.mark.parametrize("partition", [0, None])
def test_concurrent_appends_lose_and_duplicate_nothing(
    partition: int | None,
) -> None:
    woken = threading.Event()
    site = Site(partitions=2, buffer_memory=1 << 30, wake=woken.set)
    per_thread, threads = 2_000, 4

    def send(name: int) -> None:
        for number in range(per_thread):
            value = b"%d %d" % (name, number)
            handle = site.accumulator.append(TOPIC, partition, 0, None, value, (), SIZE)
            assert handle is not None

    senders = [threading.Thread(target=send, args=(name,)) for name in range(threads)]
    for sender in senders:
        sender.start()
    found: Counter[bytes | None] = Counter()
    while sum(found.values()) < per_thread * threads:
        assert woken.wait(60), "the engine was not woken"
        woken.clear()
        site.accumulator.begin_check()
        for queue in list(site.accumulator.waiting):
            while queue.batches:
                batch = site.accumulator.take(queue)
                found.update(record[3] for record in batch.records)
                site.accumulator.free(batch)
                site.accumulator.forget(batch)
        site.accumulator.end_check(float("inf"))
    for sender in senders:
        sender.join()
    assert set(found.values()) == {1}
    assert site.accumulator.used_bytes == 0


def test_batch_reserves_memory_as_it_grows() -> None:
    site = Site(partitions=3, batch_size=1 << 20, buffer_memory=64 * 1024)
    for partition in range(3):
        site.fill(1, partition=partition)
    assert site.accumulator.used_bytes == 3 * 16 * 1024
    site.fill(20 * 1024 // SIZE, partition=0)
    assert site.accumulator.used_bytes == 4 * 16 * 1024
    assert len(site.look()) == 3


def test_batch_is_closed_when_memory_is_exhausted() -> None:
    site = Site(batch_size=1 << 20, buffer_memory=30 * 1024)
    fitting = (16 * 1024 - HEADER_SIZE) // SIZE
    site.fill(fitting)
    site.look()
    assert site.append() is None
    assert site.wakes == 1
    assert site.take().count == fitting


@pytest.mark.parametrize("limit_bytes", [100, 20_000, 1 << 20])
def test_all_reserved_memory_is_freed(limit_bytes: int) -> None:
    site = Site(batch_size=limit_bytes, buffer_memory=1 << 30)
    site.fill(1000)
    while site.accumulator.waiting:
        batch = site.take()
        assert batch.size_bytes <= batch.reserved_bytes
        batch.succeed(0, -1)
        site.accumulator.free(batch)
        site.accumulator.forget(batch)
    assert site.accumulator.used_bytes == 0
