"""Java's order of keys; that of the members below was printed by a JVM's HashMap."""

from __future__ import annotations

from plog.client.assignors.java_hash_order import HashOrder, in_hash_order, partition_hash
from plog.hashing import java_hash
from plog.types import TopicPartition


def test_short_names_are_in_character_order() -> None:
    assert in_hash_order("dcba") == ["a", "b", "c", "d"]


def test_grown_set_keeps_its_size() -> None:
    order: HashOrder[str] = HashOrder(java_hash)
    for number in range(13):
        order.add(chr(ord("a") + number))
    for number in range(12):
        order.remove(chr(ord("a") + number))
    order.add("]")  # 93 comes before 109, "m", both in 16 and in 32 buckets.
    order.add("q")  # 113 is 1 in 16 buckets, 17 in 32.
    assert order.first() == "m"
    assert order.keys() == ["m", "q", "]"]


def test_keys_of_one_bucket_keep_insertion_order() -> None:
    assert in_hash_order(["q", "a"]) == ["q", "a"]
    assert in_hash_order(["a", "q"]) == ["a", "q"]


def test_partition_hash_uses_number_and_topic() -> None:
    assert partition_hash(TopicPartition("t", 2)) == 31 * (31 + 2) + ord("t")
