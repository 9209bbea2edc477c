"""plog's tools for clusters, on brokers with a real ZooKeeper: moves, maintenance and elections."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from plogd.testing.broker_process import BrokerProcess
from tests.cluster.conftest import StartBroker
from tests.cluster.three_brokers import IDS, start_together
from tests.helpers.client.plog_command import Plog
from tests.helpers.eventually import eventually
from tests.helpers.plog_here import plog_here
from tests.helpers.programs.confluent import produce
from tests.helpers.programs.kafka_tools import ToolOutput


class Cluster:
    """Three brokers, which can be joined by more, and plog's tools."""

    def __init__(self, make_broker: StartBroker) -> None:
        self._make_broker = make_broker
        self.brokers: dict[int, BrokerProcess] = {}
        for node_id in IDS:
            self._make(node_id)
        start_together(self.brokers.values())
        self._wait_until_available()

    def add(self, node_id: int) -> None:
        """Start another broker."""
        self._make(node_id)
        self.brokers[node_id].start()
        self._wait_until_available()

    def _make(self, node_id: int) -> None:
        self.brokers[node_id] = self._make_broker(
            f"b{node_id}",
            node_id=str(node_id),
            # Leaders then change only if a test asks for it.
            auto_leader_rebalance_enable="false",
            # A throttle becomes effective after the first response.
            replica_fetch_max_bytes="10000",
            replica_fetch_response_max_bytes="10000",
        )

    def _wait_until_available(self) -> None:
        eventually(lambda: self._available() == len(self._running), "all brokers in the metadata")

    def _available(self) -> int:
        return len(json.loads(self.run("cluster", "list-endpoints", "--json")))

    @property
    def _running(self) -> list[BrokerProcess]:
        return [broker for broker in self.brokers.values() if broker.is_running]

    @property
    def servers(self) -> str:
        """The addresses of the brokers whose processes run."""
        return ",".join(broker.bootstrap_servers for broker in self._running)

    def attempt(self, tool: str, *words: str) -> ToolOutput:
        """Run a tool, with any exit code."""
        return plog_here(tool, [*words, "--bootstrap-server", self.servers])

    def run(self, tool: str, *words: str) -> str:
        """Run a tool that must succeed; return its standard output."""
        done = self.attempt(tool, *words)
        assert done.code == 0, done.text
        return done.stdout

    def create(self, topic: str, assignment: str, size_bytes: int = 0) -> None:
        """Create a topic, and write `size_bytes` to each of its partitions."""
        self.run("topics", "--create", "--topic", topic, "--replica-assignment", assignment)
        messages = [
            {"value": bytes(10_000), "partition": number}
            for number in range(assignment.count(",") + 1)
            for _ in range(size_bytes // 10_000)
        ]
        if messages:
            assert set(produce(self.servers, topic, messages, {"acks": "all"})) == {None}

    def records(self, topic: str) -> int:
        """Return the number of records in a topic."""
        lines = self.run("get-offsets", "--topic", topic).splitlines()
        return sum(int(line.rpartition(":")[2]) for line in lines)

    def partitions(self, topic: str) -> list[dict[str, list[int]]]:
        """Return the descriptions of a topic's partitions."""
        [described] = json.loads(self.run("topics", "--describe", "--topic", topic, "--json"))
        found: list[dict[str, list[int]]] = described["partitions"]
        return found

    def replica_counts(self, topic: str) -> dict[int, int]:
        """Return the number of a topic's replicas on each broker."""
        return Counter(one for each in self.partitions(topic) for one in each["replicas"])

    def led(self, topic: str) -> dict[str, int]:
        """Return the number of a topic's partitions that each broker leads."""
        return dict(Counter(str(each["leader"]) for each in self.partitions(topic)))


@pytest.fixture
def cluster(make_broker: StartBroker) -> Cluster:
    return Cluster(make_broker)


def test_cluster_grows_and_an_interrupted_rebalance_continues(cluster: Cluster) -> None:
    cluster.create("orders", "1:2,2:3,3:1,1:2,2:3,3:1", 1_000_000)
    cluster.add(4)
    words = ("--parallel", "1", "--throttle", "20000")
    with Plog(cluster.servers).start("rebalance", *words) as process:
        eventually(lambda: "orders-" in cluster.run("reassign-partitions", "--list"), "a move")
        assert process.stop() == 130
        [line] = process.errors
    assert "run 'plog rebalance' again" in line
    assert "the throttle remains" in line
    assert "throttled" in cluster.run("configs", "--describe", "--topic", "orders")
    assert all(len(set(each["replicas"])) >= 2 for each in cluster.partitions("orders"))
    assert "removed the throttles" in cluster.attempt("rebalance").stderr
    assert "throttled" not in cluster.run("configs", "--describe", "--topic", "orders")
    assert cluster.replica_counts("orders") == {1: 3, 2: 3, 3: 3, 4: 3}
    assert sorted(cluster.led("orders").values()) == [1, 1, 2, 2]
    assert cluster.records("orders") == 600
    assert "already distributed as planned" in cluster.run("rebalance")


def test_broker_is_prepared_for_a_restart(cluster: Cluster) -> None:
    cluster.create("orders", "1:2:3,2:3:1,3:1:2", 10_000)
    config = ("--add-config", "min.insync.replicas=2")
    cluster.run("configs", "--alter", "--topic", "orders", *config)
    cluster.run("broker", "may-stop", "3")
    cluster.run("broker", "drain", "3", "--leaders-only")
    assert "3" not in cluster.led("orders")
    assert cluster.replica_counts("orders") == {1: 3, 2: 3, 3: 3}
    cluster.brokers[3].stop()
    eventually(lambda: cluster.attempt("broker", "may-stop", "2").code == 1, "a shorter ISR")
    out = cluster.attempt("broker", "may-stop", "2").stdout
    assert "orders-0: would have 1 in-sync replica, and min.insync.replicas=2" in out
    assert "broker 3 is not available" in cluster.attempt("rebalance").stderr
    cluster.brokers[3].start()
    eventually(lambda: cluster.attempt("broker", "may-stop", "2").code == 0, "broker 3 in sync")
    cluster.run("broker", "restore", "3")
    assert cluster.led("orders") == {"1": 1, "2": 1, "3": 1}
    # Without a drain, an election returns the leaders.
    cluster.brokers[2].stop()
    eventually(lambda: "2" not in cluster.led("orders"), "new leaders")
    cluster.brokers[2].start()
    every = ("--election-type", "preferred", "--all-topic-partitions")
    eventually(
        lambda: (
            cluster.attempt("leader-election", *every).code == 0 and "2" in cluster.led("orders")
        ),
        "the preferred leader",
    )
    assert cluster.led("orders") == {"1": 1, "2": 1, "3": 1}


def test_broker_that_has_failed_is_replaced(cluster: Cluster) -> None:
    cluster.create("orders", "1:3,3:2,1:2", 20_000)
    cluster.brokers[3].kill()
    eventually(lambda: "3" not in cluster.led("orders"), "new leaders")
    cluster.add(4)
    cluster.run("broker", "drain", "3")
    assert cluster.replica_counts("orders") == {1: 2, 2: 2, 4: 2}
    assert cluster.records("orders") == 6
    # The broker can return, without replicas.
    cluster.brokers[3].start()
    eventually(lambda: cluster.attempt("broker", "may-stop", "3").code == 0, "broker 3")
    assert cluster.replica_counts("orders") == {1: 2, 2: 2, 4: 2}
