"""Throttled replication: which replicas are throttled, and when a rate is exceeded (KIP-73)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from plog.settings import LONG_MAX
from plog.types import TopicPartition
from plogd.replica.cluster.replication_quota import ReplicationQuota
from plogd.replica.partition import Partition
from plogd.topic_config import TopicConfig


class _Site:
    """The quota of broker 2."""

    def __init__(self, limit: int = 1_000) -> None:
        self.limit = limit
        self.now_ms = 5_000.0
        self.quota = ReplicationQuota(
            broker_id=2,
            throttled_replicas=lambda topic: topic.leader_replication_throttled_replicas,
            limit=lambda: self.limit,
            monotonic_ms=lambda: self.now_ms,
            samples=11,
            sample_ms=1_000,
        )


def partition(number: int, *replicas: str, topic: str = "t", is_deleted: bool = False) -> Partition:
    config = TopicConfig(leader_replication_throttled_replicas=replicas)
    fake: Any = SimpleNamespace(
        topic_partition=TopicPartition(topic, number),
        log=SimpleNamespace(config=config),
        is_deleted=is_deleted,
    )
    return cast(Partition, fake)


@pytest.mark.parametrize(
    ("replicas", "covered"),
    [
        ((), []),
        (("*",), [0, 1, 2]),
        (("0:2", "1:3", "2:2"), [0, 2]),
        (("0:1", "1:3"), []),
    ],
)
def test_topic_setting_lists_the_throttled_replicas(
    replicas: tuple[str, ...], covered: list[int]
) -> None:
    quota = _Site().quota
    for _ in range(2):
        found = [number for number in range(3) if quota.covers(partition(number, *replicas))]
        assert found == covered
    assert not quota.covers(partition(0, topic="another"))


def test_list_of_replicas_can_change() -> None:
    quota = _Site().quota
    assert quota.covers(partition(0, "0:2"))
    assert not quota.covers(partition(0, "1:2"))
    assert quota.covers(partition(1, "1:2"))


def test_settings_of_topics_that_are_gone_are_not_kept() -> None:
    quota = _Site().quota
    assert quota.covers(partition(0, "0:2"))
    known = quota.known_topics
    for number in range(100):
        name = f"t{number}"
        assert quota.covers(partition(0, "0:2", topic=name))
        quota.forget(name)
        # A request that was in progress.
        assert quota.covers(partition(0, "0:2", topic=name, is_deleted=True))
    assert quota.known_topics == known
    assert not quota.covers(partition(0))
    assert quota.known_topics == known - 1


def test_rate_is_exceeded_after_a_burst_and_recovers() -> None:
    site = _Site()
    quota, throttled = site.quota, partition(0, "*")
    quota.record(throttled, 1_000)
    assert not quota.is_exceeded
    quota.record(throttled, 1)
    assert quota.is_exceeded
    # The window grows, so that the average counts.
    site.now_ms += 1_500
    assert not quota.is_exceeded
    quota.record(throttled, 4_000)
    assert quota.is_exceeded
    site.now_ms += 2_000
    assert quota.is_exceeded
    site.now_ms += 2_000
    assert not quota.is_exceeded


def test_other_replicas_do_not_count() -> None:
    quota = _Site().quota
    quota.record(partition(0, "0:1"), 1_000_000)
    assert (quota.rate, quota.is_exceeded) == (0, False)


def test_limit_can_change() -> None:
    site = _Site(LONG_MAX)
    assert not site.quota.is_limited
    site.quota.record(partition(0, "*"), 5_000)
    assert not site.quota.is_exceeded
    site.limit = 4_000
    assert site.quota.is_limited
    assert site.quota.is_exceeded
    site.limit = 0
    assert site.quota.is_exceeded
