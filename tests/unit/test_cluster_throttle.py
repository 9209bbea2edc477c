"""A throttled reassignment copies at its rate, and produce requests do not wait for it (KIP-73)."""

from __future__ import annotations

import pytest

from plog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from plog.wire.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from tests.helpers.sim.zookeeper_cluster import ZooKeeperCluster

_TOPIC, _BROKER = 2, 4
_RATE = 20_000
_SIZE = 10_000
_COUNT = 20


def set_config(
    cluster: ZooKeeperCluster, node_id: int, resource_type: int, name: str, **values: str
) -> None:
    """Change settings, through broker `node_id`."""
    configs = [
        IncrementalAlterableConfig(name=key.replace("_", "."), value=value)
        for key, value in values.items()
    ]
    resource = IncrementalAlterConfigsResource(
        resource_type=resource_type, resource_name=name, configs=configs
    )
    request = IncrementalAlterConfigsRequest(resources=[resource])
    [response] = cluster.ask(node_id, request, 1).responses
    assert response.error_code == 0, response.error_message


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_added_replica_copies_at_the_rate(side: str) -> None:
    # One batch in each response, so that the rate is exact enough.
    cluster = ZooKeeperCluster(4, replica_fetch_max_bytes=_SIZE)
    cluster.create("t")
    for number in range(_COUNT):
        assert cluster.produce("t", b"%d" % number * _SIZE) == 0
    leader = cluster.leader("t")
    [added] = {1, 2, 3, 4} - set(cluster.state("t").isr)
    throttled = leader if side == "leader" else added
    set_config(
        cluster,
        throttled,
        _BROKER,
        str(throttled),
        **{f"{side}_replication_throttled_rate": str(_RATE)},
    )
    replicas = {f"{side}_replication_throttled_replicas": f"0:{throttled}"}
    set_config(cluster, cluster.controller, _TOPIC, "t", **replicas)
    cluster.advance(500)
    moved = ReassignablePartition(
        partition_index=0, replicas=[leader, added, *cluster.state("t").isr[1:]]
    )
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name="t", partitions=[moved])], timeout_ms=10_000
    )
    begin_ms = cluster.timers.clock.monotonic_ms()
    response = cluster.ask_controller(request, 1)
    assert response.responses[0].partitions[0].error_code == 0
    # The replicas in sync are not delayed.
    cluster.advance(2_000)
    assert added not in cluster.state("t").isr
    before_ms = cluster.timers.clock.monotonic_ms()
    assert cluster.produce("t", b"new") == 0
    assert cluster.timers.clock.monotonic_ms() - before_ms < 500
    cluster.until(lambda: added in cluster.state("t").isr)
    duration_s = (cluster.timers.clock.monotonic_ms() - begin_ms) / 1000
    total = sum(len(b"%d" % number * _SIZE) for number in range(_COUNT))
    # A batch may exceed the rate, and a follower waits up to a second after that.
    assert 0.7 * total / _RATE <= duration_s <= 2.5 * total / _RATE
    assert cluster.replica(added, "t").log.log_end_offset == _COUNT + 1


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_partition_that_is_not_listed_is_not_throttled(side: str) -> None:
    cluster = ZooKeeperCluster(4)
    cluster.create("t")
    for number in range(_COUNT):
        assert cluster.produce("t", b"%d" % number * _SIZE) == 0
    for one in (1, 2, 3, 4):
        rate = {f"{side}_replication_throttled_rate": "1"}
        set_config(cluster, one, _BROKER, str(one), **rate)
    [added] = {1, 2, 3, 4} - set(cluster.state("t").isr)
    moved = ReassignablePartition(partition_index=0, replicas=[added])
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name="t", partitions=[moved])], timeout_ms=10_000
    )
    cluster.ask_controller(request, 1)
    cluster.until(lambda: cluster.state("t").isr == (added,), within_ms=2_000)
