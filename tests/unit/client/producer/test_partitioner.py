"""Partitioners choose the partition of a record."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from plog.client.producer.partitioner import (
    HashPartitioner,
    RandomPartitioner,
    RoundRobinPartitioner,
    choose_at_random,
    choose_sticky,
    chooser,
)
from plog.hashing import partition_for_key

CHANCES = [number / 100 for number in range(100)]


def test_round_robin_skips_partitions_without_leader() -> None:
    partitioner = RoundRobinPartitioner()
    chosen = [partitioner.partition("t", None, b"v", 4, (0, 2, 3)) for _ in range(6)]
    assert chosen == [0, 2, 3, 0, 2, 3]


def test_round_robin_continues_when_no_partition_has_a_leader() -> None:
    partitioner = RoundRobinPartitioner()
    assert [partitioner.partition("t", None, b"v", 2, ()) for _ in range(3)] == [0, 1, 0]


def test_round_robin_rotates_per_topic() -> None:
    partitioner = RoundRobinPartitioner()
    topics = ["a", "b", "a", "b"]
    assert [partitioner.partition(x, None, b"v", 2, (0, 1)) for x in topics] == [0, 0, 1, 1]


def test_random_partitioner_hashes_keys() -> None:
    chances = iter([0.0, 0.99])
    partitioner = RandomPartitioner(lambda: next(chances))
    assert partitioner.partition("t", b"foobar", None, 12, range(12)) == 6
    assert partitioner.partition("t", None, None, 12, range(12)) == 0
    assert partitioner.partition("t", None, None, 12, range(12)) == 11


def test_hash_partitioner_treats_missing_key_as_empty() -> None:
    partitioner = HashPartitioner()
    assert partitioner.partition("t", None, b"v", 9, ()) == partition_for_key(b"", 9)


def test_random_choice_is_uniform() -> None:
    chosen = Counter(choose_at_random(5, (0, 1, 3, 4), chance) for chance in CHANCES)
    assert chosen == {0: 25, 1: 25, 3: 25, 4: 25}
    assert set(choose_at_random(5, (), chance) for chance in CHANCES) == set(range(5))


def test_partition_with_more_queued_batches_is_less_likely() -> None:
    chosen = Counter(choose_sticky((0, 1, 2), (0, 4, 2), chance) for chance in CHANCES)
    assert chosen[0] > chosen[2] > chosen[1] > 0


@pytest.mark.parametrize("wrong", ["murmur2", 7])
def test_object_that_cannot_choose_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"partitioner is .*HashPartitioner\(\), or a function"):
        chooser(wrong, in_turn=False)
