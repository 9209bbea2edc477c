"""Elections in a cluster that need a setting or a request: preferred and unclean ones."""

from __future__ import annotations

import json

import pytest

from plog.errors import ErrorCode
from plog.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from plog.wire.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from plogd.metadata.cache import NO_LEADER
from tests.helpers.sim.zookeeper_cluster import SESSION_TIMEOUT_MS, ZooKeeperCluster

_PREFERRED, _UNCLEAN = 0, 1
_TOPIC, _BROKER = 2, 4
_GAUGES = "kafka_controller_"


def elect(cluster: ZooKeeperCluster, kind: int) -> int:
    """Request an election; return the error code."""
    topics = [TopicPartitions(topic="t", partitions=[0])]
    request = ElectLeadersRequest(election_type=kind, topic_partitions=topics, timeout_ms=10_000)
    [topic] = cluster.ask_controller(request, 2).replica_election_results
    code: int = topic.partition_result[0].error_code
    return code


def enable(cluster: ZooKeeperCluster, resource_type: int, name: str) -> None:
    """Allow unclean elections."""
    config = IncrementalAlterableConfig(name="unclean.leader.election.enable", value="true")
    resource = IncrementalAlterConfigsResource(
        resource_type=resource_type, resource_name=name, configs=[config]
    )
    request = IncrementalAlterConfigsRequest(resources=[resource])
    [response] = cluster.ask_controller(request, 1).responses
    assert response.error_code == 0, response.error_message


def gauges(cluster: ZooKeeperCluster, name: str) -> dict[int, float]:
    """Return a metric of all brokers."""
    return {
        one: float(line.split()[1])
        for one, sim in cluster.brokers.items()
        for line in sim.metrics.expose().decode().splitlines()
        if line.startswith(f"{_GAUGES}{name} ")
    }


class _Lost:
    """A cluster in which the only replica in sync is offline.

    `least` has one record, and `longest` two; the leader had acknowledged a third one.
    """

    def __init__(self) -> None:
        self.cluster = cluster = ZooKeeperCluster(4)
        cluster.create("t")
        self.leader, self.least, self.longest = self.replicas
        assert cluster.leader("t") == self.leader
        assert cluster.produce("t", b"on three") == 0
        self.kill(self.least)
        assert cluster.produce("t", b"on two") == 0
        self.kill(self.longest)
        assert cluster.state("t").isr == (self.leader,)
        assert cluster.produce("t", b"on one") == 0
        self.kill(self.leader)
        # In Kafka, the first one in the order of the assignment would lead.
        cluster.start(self.least)
        cluster.start(self.longest)
        cluster.advance(2_000)
        assert (cluster.leader("t"), cluster.state("t").isr) == (NO_LEADER, (self.leader,))

    @property
    def replicas(self) -> tuple[int, ...]:
        """The replicas of the partition."""
        store = self.cluster.brokers[self.cluster.controller].broker.store
        replicas: tuple[int, ...] = store.get(("topic", "t"))[0].assignments[0]
        return replicas

    def kill(self, one: int) -> None:
        """Kill a broker, and wait until the controller knows it."""
        self.cluster.kill(one)
        self.cluster.advance(2 * SESSION_TIMEOUT_MS)
        self.cluster.until(lambda: self.cluster.has_controller)
        self.cluster.advance(1_000)


@pytest.mark.parametrize("how", ["request", "topic setting", "setting of all brokers"])
def test_replica_with_the_longest_log_leads_after_an_unclean_election(how: str) -> None:
    lost = _Lost()
    cluster = lost.cluster
    assert gauges(cluster, "kafkacontroller_offlinepartitionscount")[cluster.controller] == 1
    assert elect(cluster, _PREFERRED) == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    if how == "request":
        assert elect(cluster, _UNCLEAN) == 0
    elif how == "topic setting":
        enable(cluster, _TOPIC, "t")
    else:
        enable(cluster, _BROKER, "")
    cluster.until(lambda: cluster.leader("t") != NO_LEADER)
    assert cluster.leader("t") == lost.longest
    state = json.loads(cluster.zookeeper.data("/brokers/topics/t/partitions/0/state") or b"{}")
    assert state["isr"] == [lost.longest]
    assert state["leader_recovery_state"] == 1
    cluster.advance(500)
    assert cluster.values("t") == [b"on three", b"on two"]
    assert elect(cluster, _UNCLEAN) == ErrorCode.ELECTION_NOT_NEEDED
    counts = gauges(cluster, "controllerstats_uncleanleaderelections_total")
    assert counts == {one: float(one == cluster.controller) for one in cluster.brokers}
    # The former leader truncates the record that only it has.
    cluster.start(lost.leader)
    cluster.until(lambda: len(cluster.state("t").isr) == 3)
    assert cluster.produce("t", b"new") == 0
    assert cluster.values("t") == [b"on three", b"on two", b"new"]
    ends = {cluster.replica(one, "t").log.log_end_offset for one in lost.replicas}
    assert ends == {3}
    state = json.loads(cluster.zookeeper.data("/brokers/topics/t/partitions/0/state") or b"{}")
    assert "leader_recovery_state" not in state
    assert gauges(cluster, "kafkacontroller_offlinepartitionscount")[cluster.controller] == 0


def test_request_for_an_unclean_election_needs_an_online_replica() -> None:
    lost = _Lost()
    for one in (lost.least, lost.longest):
        lost.kill(one)
    assert elect(lost.cluster, _UNCLEAN) == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


def test_preferred_leader_leads_again_without_a_request() -> None:
    cluster = ZooKeeperCluster(3, leader_imbalance_check_interval_seconds=30)
    cluster.create("t")
    preferred = cluster.leader("t")
    cluster.stop(preferred)
    cluster.until(lambda: cluster.has_controller and cluster.leader("t") != preferred)
    cluster.start(preferred)
    cluster.until(lambda: len(cluster.state("t").isr) == 3)
    name = "kafkacontroller_preferredreplicaimbalancecount"
    assert gauges(cluster, name)[cluster.controller] == 1
    cluster.until(lambda: cluster.leader("t") == preferred)
    cluster.advance(500)
    assert cluster.produce("t", b"a") == 0
    assert set(gauges(cluster, name).values()) == {0}
