"""A throttled reassignment copies at its rate, and produce requests do not wait for it (KIP-73)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from plog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from plog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from plog.wire.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from plogd.replica.fetch.delayed_fetch import FetchParams
from plogd.replica.fetch.fetch_context import FetchItem
from tests.helpers.sim.zookeeper_cluster import ZooKeeperCluster, error_of

_TOPIC, _BROKER = 2, 4
_RATE = 20_000
_SIZE = 10_000
_COUNT = 20


def set_config(
    cluster: ZooKeeperCluster, node_id: int, resource_type: int, name: str, key: str, value: str
) -> None:
    """Change a setting, through broker `node_id`."""
    resource = IncrementalAlterConfigsResource(
        resource_type=resource_type,
        resource_name=name,
        configs=[IncrementalAlterableConfig(name=key, value=value)],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource])
    [response] = cluster.ask(node_id, request, 1).responses
    assert response.error_code == 0, response.error_message


def fill(cluster: ZooKeeperCluster, topic: str) -> None:
    """Write records, each of which is as large as a follower's fetch may be."""
    for number in range(_COUNT):
        assert cluster.produce(topic, b"%02d" % number * (_SIZE // 2)) == 0


def move(cluster: ZooKeeperCluster, topic: str, *replicas: int) -> None:
    """Begin to move a partition."""
    moved = ReassignablePartition(partition_index=0, replicas=list(replicas))
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=topic, partitions=[moved])], timeout_ms=10_000
    )
    response = cluster.ask_controller(request, 1)
    assert response.responses[0].partitions[0].error_code == 0


def throttle(cluster: ZooKeeperCluster, side: str, topic: str, replicas: str, rate: int) -> None:
    """Set the rate of all brokers, and the replicas of a topic."""
    for one in cluster.brokers:
        set_config(cluster, one, _BROKER, str(one), f"{side}.replication.throttled.rate", str(rate))
    name = f"{side}.replication.throttled.replicas"
    set_config(cluster, cluster.controller, _TOPIC, topic, name, replicas)
    cluster.advance(500)


def without_replica(cluster: ZooKeeperCluster, topic: str) -> int:
    """Return the broker that has no replica of a topic."""
    [one] = set(cluster.brokers) - set(cluster.state(topic).isr)
    return one


@pytest.fixture
def cluster() -> ZooKeeperCluster:
    """Four brokers, and a topic with records on three of them."""
    cluster = ZooKeeperCluster(4, replica_fetch_max_bytes=_SIZE)
    cluster.create("t")
    fill(cluster, "t")
    return cluster


every_side = pytest.mark.parametrize("side", ["leader", "follower"])


@every_side
def test_added_replica_copies_at_the_rate(cluster: ZooKeeperCluster, side: str) -> None:
    leader, *others = cluster.state("t").isr
    added = without_replica(cluster, "t")
    throttle(cluster, side, "t", f"0:{leader if side == 'leader' else added}", _RATE)
    begin_ms = cluster.timers.clock.monotonic_ms()
    move(cluster, "t", leader, added, *others)
    cluster.until(lambda: added in cluster.state("t").isr)
    duration_s = (cluster.timers.clock.monotonic_ms() - begin_ms) / 1000
    # A batch may exceed the rate, and a follower waits up to a second after that.
    assert 0.7 * _COUNT * _SIZE / _RATE <= duration_s <= 2.5 * _COUNT * _SIZE / _RATE
    assert cluster.replica(added, "t").log.log_end_offset == _COUNT


@every_side
def test_replicas_in_sync_are_not_delayed(cluster: ZooKeeperCluster, side: str) -> None:
    throttle(cluster, side, "t", "*", 1)
    for number in range(5):
        begun = cluster.begin_produce("t", b"%02d" % number * (_SIZE // 2))
        cluster.advance(200)
        assert begun.is_done
        assert error_of(begun) == 0


@every_side
def test_other_partitions_are_not_delayed(cluster: ZooKeeperCluster, side: str) -> None:
    cluster.create("u")
    fill(cluster, "u")
    target = without_replica(cluster, "t")
    # The same broker gets both partitions, from the same leader.
    leader = cluster.leader("t")
    move(cluster, "u", leader)
    cluster.until(lambda: cluster.state("u").isr == (leader,))
    throttle(cluster, side, "t", "*", 1)
    move(cluster, "t", target)
    cluster.advance(200)
    move(cluster, "u", target)
    cluster.until(lambda: cluster.state("u").isr == (target,), within_ms=3_000)
    assert len(cluster.state("t").isr) == 3


def test_withheld_fetches_wait_at_the_leader(
    cluster: ZooKeeperCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each append would complete them otherwise, although they get no records."""
    leader, *others = cluster.state("t").isr
    added = without_replica(cluster, "t")
    throttle(cluster, "leader", "t", "*", 1)
    move(cluster, "t", leader, added, *others)
    cluster.advance(500)
    manager = cluster.brokers[leader].broker.replica_manager
    fetch, fetches = manager.fetch_records, 0

    def count(items: Sequence[FetchItem], params: FetchParams) -> Any:
        nonlocal fetches
        fetches += params.follower is not None and params.follower.replica_id == added
        return fetch(items, params)

    monkeypatch.setattr(manager, "fetch_records", count)
    for _ in range(40):
        assert cluster.produce("t", b"x") == 0
        cluster.advance(50)
    # One in each replica.fetch.wait.max.ms.
    assert 2 <= fetches <= 8


@every_side
def test_settings_of_deleted_topics_are_not_kept(cluster: ZooKeeperCluster, side: str) -> None:
    throttle(cluster, side, "t", "*", _RATE)
    assert cluster.produce("t", b"a") == 0
    replicas = [one.broker.cluster_replicas for one in cluster.brokers.values()]
    quotas = [quota for one in replicas for quota in (one.leader_quota, one.follower_quota)]
    assert any(quota.known_topics for quota in quotas)
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=10_000)
    assert cluster.ask_controller(request, 6).responses[0].error_code == 0
    cluster.advance(1_000)
    assert [quota.known_topics for quota in quotas] == [0] * len(quotas)
