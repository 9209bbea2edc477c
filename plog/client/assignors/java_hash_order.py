"""The iteration order of Java's HashMap and HashSet.

If several members are equally entitled to an extra partition, Kafka's sticky assignor gives it to
the first of them in such a map. With the same order here, the result does not depend on which
client leads the group. Java converts buckets of eight or more keys into trees; this module does not
reproduce that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from plog.hashing import java_hash
from plog.types import TopicPartition

_FIRST_CAPACITY = 16
# Java's default load factor: a table that is fuller is doubled.
_LOAD = 0.75

T = TypeVar("T")


def in_hash_order(keys: Iterable[str]) -> list[str]:
    """Return the strings in the order of a HashMap to which they were added one by one.

    >>> in_hash_order(["member-10", "member-2", "b", "a"])
    ['a', 'b', 'member-2', 'member-10']
    """
    hashed: HashOrder[str] = HashOrder(java_hash)
    for key in keys:
        hashed.add(key)
    return hashed.keys()


def partition_hash(partition: TopicPartition) -> int:
    """Return Java's ``TopicPartition.hashCode``; only the lower 32 bits are significant."""
    # In Java, this int computation overflows; `HashOrder.add` discards the upper bits.
    return 31 * (31 + partition.partition) + java_hash(partition.topic)


class HashOrder(Generic[T]):
    """A set with the iteration order of Java's HashSet; its table grows but never shrinks."""

    def __init__(self, hash_of: Callable[[T], int]) -> None:
        self._hash_of = hash_of
        self._keys: dict[T, int] = {}
        self._capacity = _FIRST_CAPACITY

    def __bool__(self) -> bool:
        return bool(self._keys)

    def add(self, key: T) -> None:
        """Add `key` unless it is present."""
        if key in self._keys:
            return
        # Python's integers do not overflow, so keep only the 32 bits of Java's int.
        value = self._hash_of(key) & 0xFFFF_FFFF
        # HashMap mixes the upper bits into the lower bits, which select the bucket.
        self._keys[key] = value ^ value >> 16
        while len(self._keys) > self._capacity * _LOAD:
            self._capacity *= 2

    def remove(self, key: T) -> None:
        """Remove `key`, which must be present."""
        del self._keys[key]

    def first(self) -> T:
        """Return the first key."""
        return min(self._keys, key=self._bucket)

    def keys(self) -> list[T]:
        """Return all keys in order; keys in the same bucket are in insertion order."""
        return sorted(self._keys, key=self._bucket)

    def _bucket(self, key: T) -> int:
        # The capacity is a power of two, so the mask computes the remainder.
        return self._keys[key] & self._capacity - 1
