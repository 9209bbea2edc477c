"""Queued batches, their order, and the effect of compression on their size."""

from __future__ import annotations

from threading import Lock

from plog.client.producer.partition_queue import TopicQueues
from plog.hashing import partition_for_key


def topic_with(partitions: int = 3) -> TopicQueues:
    topic = TopicQueues("t", batch_size=1_000)
    for _ in range(partitions):
        topic.add_queue(None)
    topic.use(partitions)
    topic.set_available(range(partitions))
    return topic


def test_retried_batch_is_queued_before_later_batches() -> None:
    queue = topic_with().queues[0]
    lock = Lock()
    first, second, third = (
        queue.begin_batch(lock, created_s=0, limit_bytes=1_000) for _ in range(3)
    )
    assert queue.open is third
    queue.batches.remove(first)
    queue.batches.remove(second)
    queue.insert(second)
    queue.insert(first)
    assert list(queue.batches) == [first, second, third]


def test_parts_replace_split_batch_in_order() -> None:
    queue = topic_with().queues[0]
    first, second = (queue.begin_batch(Lock(), created_s=0, limit_bytes=1_000) for _ in range(2))
    first.records = [(-1, 0, None, b"v", ())] * 4
    queue.batches.remove(first)
    parts = first.split(61 + 2 * 12)
    for part in reversed(parts):
        queue.insert(part)
    assert list(queue.batches) == [*parts, second]


def test_compressible_records_fill_larger_batches_up_to_a_limit() -> None:
    topic = topic_with()
    limits = []
    for _ in range(300):
        topic.expect_ratio(0.1)
        limits.append(topic.limit_bytes)
    assert limits == sorted(limits)
    assert limits[0] < 1_000
    assert limits[-1] == int(1_000 / (0.1 * 1.05))
    for _ in range(300):
        topic.expect_ratio(0.001)
    assert topic.limit_bytes == 16_000


def test_incompressible_batch_raises_ratio_immediately() -> None:
    topic = topic_with()
    for _ in range(300):
        topic.expect_ratio(0.1)
    topic.expect_ratio(1.0)
    assert topic.limit_bytes == int(1_000 / 1.05)


def test_sticky_partition_changes_when_its_leader_is_lost() -> None:
    topic = topic_with(2)
    assert topic.stick_to_next(0.0, is_adaptive=True) is topic.queues[0]
    topic.set_available([1])
    assert topic.sticky is None
    assert topic.stick_to_next(0.0, is_adaptive=True) is topic.queues[1]


def test_partition_with_backlog_is_chosen_less_often() -> None:
    topic = topic_with(2)
    for _ in range(3):
        topic.queues[0].begin_batch(Lock(), created_s=0, limit_bytes=1_000)
    chances = [number / 10 for number in range(10)]
    for is_adaptive, expected in ((True, 2), (False, 5)):
        chosen = [topic.stick_to_next(chance, is_adaptive=is_adaptive) for chance in chances]
        assert chosen.count(topic.queues[0]) == expected


def test_topic_without_partitions_has_no_sticky_partition() -> None:
    assert TopicQueues("t", batch_size=1).stick_to_next(0.5, is_adaptive=True) is None


def test_key_cache_follows_number_of_partitions_and_stays_bounded() -> None:
    topic = topic_with(3)
    keys = [b"%d" % number for number in range(10_000)]
    for _ in range(2):
        assert [topic.partition_of(key) for key in keys] == [partition_for_key(x, 3) for x in keys]
    topic.add_queue(None)
    topic.use(4)
    assert [topic.partition_of(key) for key in keys] == [partition_for_key(x, 4) for x in keys]


def test_recreated_topic_may_have_fewer_partitions_and_later_more() -> None:
    topic = topic_with(3)
    queues = topic.queues
    topic.use(1)
    assert {topic.partition_of(b"%d" % number) for number in range(100)} == {0}
    topic.use(3)
    assert topic.queues == queues
    assert {topic.partition_of(b"%d" % number) for number in range(100)} == {0, 1, 2}
