"""The plan of the next fetch from a node, within its limits."""

from __future__ import annotations

from plog.client.consumer.fetch_plan import FetchPlan, plan_fetch
from plog.client.consumer.partition_state import PartitionState
from plog.client.consumer.reset_target import LATEST
from plog.client.consumer.subscription_state import SubscriptionState
from plog.types import TopicPartition

TS = [TopicPartition("t", number) for number in range(4)]
PARTITION_MAX = 100


class Site:
    """Partitions 0 to 2 are led by node 1, 3 by node 2; all have position 7."""

    def __init__(self) -> None:
        self.positions = SubscriptionState()
        self.positions.assign(TS)
        for partition in TS:
            self.positions.seek(partition, 7)
            self.state(partition).leader = 2 if partition.partition == 3 else 1

    def state(self, partition: TopicPartition) -> PartitionState:
        return self.positions.states[partition]

    def plan(self, node: int = 1, now_s: float = 0.0, fetch_max_bytes: int = 1000) -> FetchPlan:
        return plan_fetch(
            self.positions,
            node,
            now_s,
            fetch_max_bytes=fetch_max_bytes,
            partition_max_bytes=PARTITION_MAX,
        )


def test_plan_contains_partitions_led_by_node() -> None:
    site = Site()
    assert list(site.plan(1).partitions) == TS[:3]
    assert list(site.plan(2).partitions) == TS[3:]
    assert site.plan(9).partitions == {}
    wanted = site.plan(2).partitions[TS[3]]
    assert (wanted.offset, wanted.max_bytes, wanted.leader_epoch) == (7, PARTITION_MAX, -1)


def test_plan_omits_paused_and_unready_partitions() -> None:
    site = Site()
    site.positions.pause([TS[0]])
    site.positions.request_reset(TS[1], LATEST)
    assert list(site.plan().partitions) == [TS[2]]


def test_plan_omits_partition_during_backoff() -> None:
    site = Site()
    site.state(TS[0]).retry_at_s = 5.0
    site.state(TS[1]).retry_at_s = float("inf")
    plan = site.plan(now_s=4.0)
    assert (list(plan.partitions), plan.retry_at_s) == ([TS[2]], 5.0)
    assert list(site.plan(now_s=5.0).partitions) == [TS[0], TS[2]]


def test_buffered_bytes_reduce_max_bytes_of_next_fetch() -> None:
    site = Site()
    site.state(TS[0]).buffered_bytes = 60
    plan = site.plan()
    assert (len(plan.partitions), plan.max_bytes, plan.is_full) == (3, 940, False)


def test_plan_is_empty_when_one_partition_has_enough_buffered() -> None:
    """A fetch of the others could wait for data and delay the next fetch of that partition."""
    site = Site()
    site.state(TS[0]).buffered_bytes = PARTITION_MAX
    assert len(site.plan().partitions) == 3
    site.state(TS[0]).buffered_bytes = PARTITION_MAX + 1
    assert (site.plan().partitions, site.plan().is_full) == ({}, True)
    assert len(site.plan(2).partitions) == 1


def test_plan_is_empty_when_half_of_fetch_max_bytes_is_buffered() -> None:
    site = Site()
    for partition in TS[:3]:
        site.state(partition).buffered_bytes = 90
    assert site.plan(fetch_max_bytes=540).max_bytes == 270
    assert site.plan(fetch_max_bytes=539).is_full


def test_limits_of_zero_still_allow_one_batch() -> None:
    site = Site()
    plan = plan_fetch(site.positions, 1, 0.0, fetch_max_bytes=0, partition_max_bytes=0)
    assert (len(plan.partitions), plan.max_bytes) == (3, 1)
    site.state(TS[0]).buffered_bytes = 1
    assert plan_fetch(site.positions, 1, 0.0, fetch_max_bytes=0, partition_max_bytes=0).is_full


def test_buffered_data_of_paused_partitions_does_not_block_fetches() -> None:
    site = Site()
    site.state(TS[0]).buffered_bytes = 5000
    site.positions.pause([TS[0]])
    assert list(site.plan().partitions) == TS[1:3]


def test_leader_plan_retries_when_follower_lease_ends() -> None:
    site = Site()
    for partition in TS[:3]:
        site.state(partition).replica, site.state(partition).replica_until_s = 2, 10.0
    plan = site.plan(now_s=9.0)
    assert (plan.partitions, plan.retry_at_s) == ({}, 10.0)
    assert list(site.plan(now_s=10.0).partitions) == TS[:3]


def test_plan_may_read_from_follower() -> None:
    site = Site()
    site.state(TS[0]).replica, site.state(TS[0]).replica_until_s = 2, 10.0
    assert list(site.plan(2).partitions) == [TS[0], TS[3]]
    assert TS[0] in site.plan(1, now_s=10.0).partitions
