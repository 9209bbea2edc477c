"""Partitioners, which choose the partition of a record if the application does not.

By default, records with a key go to the partition given by Kafka's hash of the key, as in all Kafka
clients. Records without a key go to the same partition until a batch is full (KIP-480, KIP-794), so
that batches are few and large. The accumulator implements the default, using `choose_sticky` to
change partitions. Any other strategy is a `Partitioner`, or a function with the same parameters.
Pure: random numbers are arguments.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Protocol

from plog.client.callback_checks import check_partitioner
from plog.hashing import partition_for_key


class Partitioner(Protocol):
    """Chooses partitions. The sending threads call it, possibly several at the same time."""

    def partition(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        count: int,
        available: Sequence[int],
    ) -> int:
        """Return one of the `count` partitions of `topic`; those in `available` have a leader.

        Key and value are serialized.
        """
        ...


class RoundRobinPartitioner:
    """Uses partitions in rotation and ignores keys; skips partitions without a leader."""

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
        # Two threads may read the same number. The rotation is then slightly uneven, which does
        # less harm than a lock for each record.
        turn = self._next_by_topic.get(topic, 0)
        self._next_by_topic[topic] = turn + 1
        return available[turn % len(available)] if available else turn % count


class RandomPartitioner:
    """Chooses a random partition for records without a key, and hashes keys as Kafka does."""

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
        """Return a random partition, or the partition of the key."""
        if key is not None:
            return partition_for_key(key, count)
        return choose_at_random(count, available, self._random())


class HashPartitioner:
    """Hashes keys as Kafka does; a record without a key is treated as if its key were empty.

    Unlike with the default, the partition never depends on how records are batched.
    """

    def partition(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        count: int,
        available: Sequence[int],
    ) -> int:
        """Return the partition of the key."""
        return partition_for_key(key or b"", count)


def chooser(
    partitioner: Partitioner | Callable[..., int] | None, *, in_turn: bool
) -> Callable[..., int] | None:
    """Return the function that chooses partitions, or None for the accumulator's default.

    Raises TypeError if `partitioner` cannot choose partitions.
    """
    # ``partitioner.class`` accepts only one class, RoundRobinPartitioner.
    if partitioner is None and in_turn:
        return RoundRobinPartitioner().partition
    return check_partitioner(partitioner)


def choose_at_random(count: int, available: Sequence[int], chance: float) -> int:
    """Return one of `available`, or of all partitions if it is empty; 0 <= `chance` < 1.

    >>> choose_at_random(8, (2, 3, 5), 0.5)
    3
    """
    return available[int(chance * len(available))] if available else int(chance * count)


def choose_sticky(available: Sequence[int], queued: Sequence[int], chance: float) -> int:
    """Return the next sticky partition; the fewer queued batches, the likelier the choice.

    `queued` holds the number of queued batches of each `available` partition. Source: KIP-794.

    >>> [choose_sticky((0, 1, 2), (0, 3, 1), eighth / 8) for eighth in range(8)]
    [0, 0, 0, 0, 1, 2, 2, 2]
    """
    # Plus one, so that even the longest queue can be chosen, as in KIP-794.
    most = max(queued) + 1
    weights = list(accumulate(most - waiting for waiting in queued))
    return available[bisect_right(weights, int(chance * weights[-1]))]
