"""Tools for clusters, and Kafka's own, run on three Apache Kafka brokers.

cluster_tool_lines.txt contains the commands that print the same. The other tests use a cluster that
is busy with moves, or tools that Kafka does not have.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.client.plog_command import Plog
from tests.helpers.eventually import eventually
from tests.helpers.programs.confluent import produce
from tests.helpers.programs.kafka_cluster import KafkaCluster
from tests.helpers.programs.kafka_server import kafka_jars
from tests.helpers.programs.kafka_tools import KafkaTools
from tests.integration.kafka_comparison.tool_lines import differences, sections

pytestmark = pytest.mark.long

_TABLE = Path(__file__).with_name("cluster_tool_lines.txt")
_VERSION = "4.3.1"


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """Brokers 1 and 2 in rack a, and broker 3 in rack b."""
    cluster = KafkaCluster(
        kafka_jars(_VERSION),
        tmp_path_factory.mktemp("kafka"),
        racks={1: "a", 2: "a", 3: "b"},
        settings={
            "offsets.topic.num.partitions": "1",
            "auto.leader.rebalance.enable": "false",
            # A throttle becomes effective after the first response, which must not contain all
            # records.
            "replica.fetch.max.bytes": "10000",
            "replica.fetch.response.max.bytes": "10000",
        },
    )
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.kill()


@pytest.fixture
def plog(kafka: KafkaCluster) -> Plog:
    return Plog(kafka.bootstrap_servers)


@pytest.mark.parametrize("lines", [pytest.param(x, id=name) for name, x in sections(_TABLE)])
def test_both_tools_print_the_same(
    kafka: KafkaCluster, kafka_tools: KafkaTools, lines: list[str], tmp_path: Path
) -> None:
    different = differences(kafka.bootstrap_servers, kafka_tools, lines, tmp_path)
    assert not different, "\n\n".join(different)


def _describe(plog: Plog, topic: str) -> list[dict[str, list[int]]]:
    [described] = json.loads(plog.run("topics", "--describe", "--topic", topic, "--json"))
    partitions: list[dict[str, list[int]]] = described["partitions"]
    return partitions


def _create(plog: Plog, topic: str, assignment: str, size_bytes: int = 0) -> None:
    """Create a topic, and write `size_bytes` to each of its partitions."""
    plog.run("topics", "--create", "--topic", topic, "--replica-assignment", assignment)
    if size_bytes:
        numbers = range(assignment.count(",") + 1)
        messages = [
            {"value": bytes(10_000), "partition": number}
            for number in numbers
            for _ in range(size_bytes // 10_000)
        ]
        assert set(produce(plog.bootstrap_servers, topic, messages, {"acks": "all"})) == {None}


def _replica_counts(plog: Plog, topic: str) -> list[int]:
    counts = Counter(one for each in _describe(plog, topic) for one in each["replicas"])
    return [counts[broker] for broker in (1, 2, 3)]


def _led(plog: Plog, topic: str) -> list[int]:
    counts = Counter(str(each["leader"]) for each in _describe(plog, topic))
    return [counts[str(broker)] for broker in (1, 2, 3)]


def _delete(plog: Plog, topic: str) -> None:
    """Delete a topic, so that the next test has a cluster of its own."""
    plog.run("topics", "--delete", "--topic", topic)
    eventually(
        lambda: topic not in plog.run("topics", "--list").decode().split(), "end of the topic"
    )


def test_move_in_progress_is_listed_verified_and_cancelled_like_kafkas(
    plog: Plog, kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    _create(plog, "moving", "1:2", 2_000_000)
    path = tmp_path / "moves.json"
    rows = [{"topic": "moving", "partition": 0, "replicas": [3, 2]}]
    path.write_text(json.dumps({"partitions": rows}))
    words = ("--reassignment-json-file", path)
    ours = plog.run("reassign-partitions", "--execute", *words, "--throttle", "1000").decode()
    assert "The inter-broker throttle limit was set to 1000 B/s" in ours
    java = kafka_tools.against(plog.bootstrap_servers)
    for line in (
        ("--list",),
        ("--verify", *words),
        ("--verify", *words, "--preserve-throttles"),
    ):
        theirs = java("ReassignPartitionsCommand", *line).stdout
        assert plog.run("reassign-partitions", *line).decode() == theirs
    refused = plog.refusal("reassign-partitions", "--execute", *words)
    assert "Cannot execute because there is an existing partition assignment" in refused
    cancelled = plog.run("reassign-partitions", "--cancel", *words).decode()
    assert "Successfully cancelled partition reassignment for: moving-0" in cancelled
    assert set(_describe(plog, "moving")[0]["replicas"]) == {1, 2}
    assert b"throttled" not in plog.run("configs", "--describe", "--topic", "moving")
    _delete(plog, "moving")


def test_interrupted_rebalance_leaves_a_valid_state_and_continues(plog: Plog) -> None:
    _create(plog, "orders", ",".join(["1:2", "2:1"] * 3), 500_000)
    with plog.start("rebalance", "--throttle", "20000", "--parallel", "2") as process:
        eventually(
            lambda: b"orders-" in plog.run("reassign-partitions", "--list"), "move in progress"
        )
        assert process.stop() == 130
        [line] = process.errors
    assert "interrupted: " in line and "run 'plog rebalance' again" in line
    assert all(len(set(each["replicas"])) >= 2 for each in _describe(plog, "orders"))
    done = plog.attempt("rebalance")
    assert (done.returncode, b"removed the throttles" in done.stderr) == (0, True)
    # Broker 3 is alone in its rack, so that it has a replica of each partition.
    assert _replica_counts(plog, "orders") == [3, 3, 6]
    assert _led(plog, "orders") == [2, 2, 2]
    assert b"throttled" not in plog.run("configs", "--describe", "--topic", "orders")
    assert plog.run("reassign-partitions", "--list").strip() == b"No partition reassignments found."
    assert plog.record_count("orders") == 300
    assert b"already distributed as planned" in plog.run("rebalance")
    _delete(plog, "orders")


def test_broker_is_drained_restored_and_may_stop(plog: Plog, kafka: KafkaCluster) -> None:
    _create(plog, "orders", "1:2:3,2:3:1,3:1:2", 10_000)
    plog.run("configs", "--alter", "--topic", "orders", "--add-config", "min.insync.replicas=2")
    plog.run("broker", "may-stop", "3")
    plog.run("broker", "drain", "3", "--leaders-only")
    assert _led(plog, "orders")[2] == 0
    assert _replica_counts(plog, "orders") == [3, 3, 3]
    kafka.brokers[3].stop()
    done = plog.attempt("broker", "may-stop", "2")
    assert done.returncode == 1
    assert b"orders-0: would have 1 in-sync replica, and min.insync.replicas=2" in done.stdout
    assert "broker 3 is not available" in plog.refusal("rebalance")
    kafka.brokers[3].start()
    eventually(lambda: plog.attempt("broker", "may-stop", "2").returncode == 0, "broker 3 in sync")
    plog.run("broker", "restore", "3")
    assert _led(plog, "orders") == [1, 1, 1]
    _delete(plog, "orders")


def test_all_replicas_leave_a_broker_that_has_failed(plog: Plog, kafka: KafkaCluster) -> None:
    _create(plog, "orders", "1:3,3:2,1:2", 10_000)
    kafka.brokers[3].kill()
    eventually(lambda: _led(plog, "orders")[2] == 0, "new leader")
    try:
        out = plog.run("broker", "drain", "3").decode()
        assert out.splitlines()[-1].startswith("Done: moved replicas of ")
        assert _replica_counts(plog, "orders") == [3, 3, 0]
        assert plog.record_count("orders") == 3
    finally:
        kafka.brokers[3].start()
    _delete(plog, "orders")
