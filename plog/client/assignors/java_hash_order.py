"""The order in which Java's HashMap and HashSet go through their keys.

Where members have an equal claim to one partition more, Kafka's sticky assignor gives it to the
one that comes first in such a map. Going by the same order gives the same result, whichever client
leads the group. Not followed: a bucket of eight keys and more, which Java turns into a tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from plog.hashing import java_hash
from plog.types import TopicPartition

_FIRST_CAPACITY = 16
_LOAD = 0.75

T = TypeVar("T")


def in_hash_order(keys: Iterable[str]) -> list[str]:
    """The strings as a HashMap they were put into one by one gives them back.

    >>> in_hash_order(["member-10", "member-2", "b", "a"])
    ['a', 'b', 'member-2', 'member-10']
    """
    hashed: HashOrder[str] = HashOrder(java_hash)
    for key in keys:
        hashed.add(key)
    return hashed.keys()


def partition_hash(partition: TopicPartition) -> int:
    """Java's ``TopicPartition.hashCode``; only its lower 32 bits count."""
    return 31 * (31 + partition.partition) + java_hash(partition.topic)


class HashOrder(Generic[T]):
    """A HashSet: it grows with what is in it and never shrinks."""

    def __init__(self, hash_of: Callable[[T], int]) -> None:
        self._hash_of = hash_of
        self._keys: dict[T, int] = {}
        self._capacity = _FIRST_CAPACITY

    def __bool__(self) -> bool:
        return bool(self._keys)

    def add(self, key: T) -> None:
        """Add `key`, unless it is there."""
        if key in self._keys:
            return
        value = self._hash_of(key) & 0xFFFF_FFFF
        self._keys[key] = value ^ value >> 16
        while len(self._keys) > self._capacity * _LOAD:
            self._capacity *= 2

    def remove(self, key: T) -> None:
        """Remove `key`, which has to be there."""
        del self._keys[key]

    def first(self) -> T:
        """The key that comes first."""
        return min(self._keys, key=self._bucket)

    def keys(self) -> list[T]:
        """All keys, in order. Those of one bucket stand as they came."""
        return sorted(self._keys, key=self._bucket)

    def _bucket(self, key: T) -> int:
        return self._keys[key] & self._capacity - 1
