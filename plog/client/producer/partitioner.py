"""Partitioners: they choose a record's partition if the application does not.

By default, Kafka's hash of the key selects the partition, as in Kafka's own producer. Records
without a key are sent to the same partition until a batch is full (KIP-480, KIP-794), so that
batches are few and large. The accumulator implements the default and calls `choose_sticky` to
change partitions. Any other strategy is a `Partitioner`, or a function with the same parameters.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Protocol

from plog.client.callback_checks import check_partitioner
from plog.hashing import partition_for_key


class Partitioner(Protocol):
    """The interface of a partitioner. Several sending threads may call it at the same time."""

    def partition(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        count: int,
        available: Sequence[int],
    ) -> int:
        """Return a partition of `topic`, from 0 to `count` - 1.

        `available` lists the partitions that have a leader. `key` and `value` are serialized.
        """
        ...


class RoundRobinPartitioner:
    """A partitioner that rotates through the partitions with a leader, and ignores keys."""

    def __init__(self) -> None:
        self._next_by_topic: dict[str, int] = {}

    def partition(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        count: int,
        available: Sequence[int],
    ) -> int:
        """Return the next partition in rotation."""
        # Two threads may read the same number, which makes the rotation slightly uneven. A lock for
        # each record would cost more than that.
        turn = self._next_by_topic.get(topic, 0)
        self._next_by_topic[topic] = turn + 1
        return available[turn % len(available)] if available else turn % count


class RandomPartitioner:
    """A partitioner that hashes keys as Kafka does; without a key, the partition is random."""

    def __init__(self, random: Callable[[], float]) -> None:
        self._random = random

    def partition(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        count: int,
        available: Sequence[int],
    ) -> int:
        """Return the partition for the key or, without a key, a random partition."""
        if key is not None:
            return partition_for_key(key, count)
        return choose_at_random(count, available, self._random())


class HashPartitioner:
    """A partitioner that hashes keys as Kafka does; a missing key counts as an empty key.

    Unlike with the default, the partition never depends on batching.
    """

    def partition(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        count: int,
        available: Sequence[int],
    ) -> int:
        """Return the partition for the key."""
        return partition_for_key(key or b"", count)


def chooser(
    partitioner: Partitioner | Callable[..., int] | None, *, in_turn: bool
) -> Callable[..., int] | None:
    """Return the function that chooses partitions, or None for the accumulator's default.

    Raises TypeError if `partitioner` cannot choose partitions.
    """
    # The only class that ``partitioner.class`` accepts is RoundRobinPartitioner.
    if partitioner is None and in_turn:
        return RoundRobinPartitioner().partition
    return check_partitioner(partitioner)


def choose_at_random(count: int, available: Sequence[int], chance: float) -> int:
    """Return a partition in `available` or, if that is empty, any; 0 <= `chance` < 1.

    >>> choose_at_random(8, (2, 3, 5), 0.5)
    3
    """
    return available[int(chance * len(available))] if available else int(chance * count)


def choose_sticky(available: Sequence[int], queued: Sequence[int], chance: float) -> int:
    """Return the next sticky partition; shorter queues are more likely.

    `queued` contains the number of queued batches of each partition in `available`. Source:
    KIP-794.

    >>> [choose_sticky((0, 1, 2), (0, 3, 1), eighth / 8) for eighth in range(8)]
    [0, 0, 0, 0, 1, 2, 2, 2]
    """
    # As in KIP-794, adding 1 makes even the partition with the longest queue possible.
    most = max(queued) + 1
    weights = list(accumulate(most - waiting for waiting in queued))
    return available[bisect_right(weights, int(chance * weights[-1]))]
