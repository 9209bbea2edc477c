"""Which partition a record goes to when its sender does not say.

By default: records with a key by Kafka's hash of it, as all Kafka clients do; those without stay in
one partition until a batch of it is full (KIP-480, KIP-794), so that batches are full and few. The
accumulator does that by itself, with `choose_sticky` for the change to the next partition. Any
other way is a `Partitioner`, or a function of the same arguments. Pure, but for the chance given.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Protocol

from plog.client.callback_checks import check_partitioner
from plog.hashing import partition_for_key


class Partitioner(Protocol):
    """Chooses partitions; called in the sender's thread, by several at once where they send."""

    def partition(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        count: int,
        available: Sequence[int],
    ) -> int:
        """One of the `count` partitions of `topic`; `available` are those that have a leader.

        Key and value are as the serializers have made them.
        """
        ...


class RoundRobinPartitioner:
    """Each partition in turn, with or without a key; those without a leader are passed over."""

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
        """The next one."""
        turn = self._next_by_topic.get(topic, 0)
        self._next_by_topic[topic] = turn + 1
        return available[turn % len(available)] if available else turn % count


class RandomPartitioner:
    """Any partition for each record that has no key, and Kafka's hash for those that have one."""

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
        """Where chance or the key says."""
        if key is not None:
            return partition_for_key(key, count)
        return choose_at_random(count, available, self._random())


class HashPartitioner:
    """Kafka's hash of the key, and of an empty key for records without: what the default does
    with keys, for who wants nothing to depend on batches."""

    def partition(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        count: int,
        available: Sequence[int],
    ) -> int:
        """Where the key says."""
        return partition_for_key(key or b"", count)


def chooser(
    partitioner: Partitioner | Callable[..., int] | None, *, in_turn: bool
) -> Callable[..., int] | None:
    """The function that chooses partitions; None for the default, which the accumulator knows.

    Raises TypeError for a `partitioner` that cannot choose.
    """
    if partitioner is None and in_turn:
        return RoundRobinPartitioner().partition
    return check_partitioner(partitioner)


def choose_at_random(count: int, available: Sequence[int], chance: float) -> int:
    """One of `available`, or of all where there is none; `chance` is from 0 up to 1.

    >>> choose_at_random(8, (2, 3, 5), 0.5)
    3
    """
    return available[int(chance * len(available))] if available else int(chance * count)


def choose_sticky(available: Sequence[int], queued: Sequence[int], chance: float) -> int:
    """The next partition to stay in: one with fewer batches waiting is as much more likely.

    `queued` are the batches that wait in each of the `available` partitions. Source: KIP-794.

    >>> [choose_sticky((0, 1, 2), (0, 3, 1), eighth / 8) for eighth in range(8)]
    [0, 0, 0, 0, 1, 2, 2, 2]
    """
    most = max(queued) + 1
    weights = list(accumulate(most - waiting for waiting in queued))
    return available[bisect_right(weights, int(chance * weights[-1]))]
