"""Partitions move between three real brokers, with Kafka's own tools, while a client writes."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from tests.cluster.clients import admin, consume, produce
from tests.cluster.conftest import StartBroker
from tests.cluster.test_three_brokers import Cluster
from tests.helpers.eventually import TIMEOUT_S, eventually
from tests.helpers.programs.kafka_tools import KafkaTools, RunTool


@pytest.fixture(scope="module")
def kafka_tools() -> Iterator[KafkaTools]:
    """Kafka's tools, in one JVM."""
    tools = KafkaTools.installed()
    yield tools
    tools.close()


@pytest.fixture
def cluster(make_broker: StartBroker) -> Cluster:
    """Three brokers and the topic ``clicks``, which is on brokers 1 and 2."""
    cluster = Cluster(make_broker)
    client = admin(cluster)
    new = NewTopic("clicks", num_partitions=1, replica_assignment=[[1, 2]])
    [future] = client.create_topics([new]).values()
    future.result(TIMEOUT_S)
    return cluster


class _Writer:
    """Writes numbered records in a thread, and stops at the first that is not acknowledged."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.written: list[bytes] = []
        self._thread.start()

    def _run(self) -> None:
        while not self._is_stopped.is_set():
            value = b"%d" % len(self.written)
            produce(self._cluster, "clicks", value)
            self.written.append(value)

    def wait(self) -> None:
        """Wait until more records have been written."""
        count = len(self.written) + 5
        eventually(lambda: len(self.written) >= count, "more records")

    def stop(self) -> list[bytes]:
        """Return all records."""
        self._is_stopped.set()
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive()
        return self.written


def replicas(cluster: Cluster) -> tuple[list[int], set[int]]:
    """Return the replicas and the ISR of the partition."""
    partition = cluster.described().topics["clicks"].partitions[0]
    return list(partition.replicas), set(partition.isrs)


def move(run: RunTool, plan: Path, *target: int, throttle: int | None = None) -> None:
    """Begin to move the partition; `throttle` is in bytes per second."""
    moved = {"topic": "clicks", "partition": 0, "replicas": list(target)}
    plan.write_text(json.dumps({"version": 1, "partitions": [moved]}))
    options = [] if throttle is None else ["--throttle", str(throttle)]
    execute = ("--reassignment-json-file", plan, "--execute", *options)
    output = run("ReassignPartitionsCommand", *execute)
    assert "Successfully started partition reassignment for clicks-0" in output.text, output.text


def is_complete(run: RunTool, plan: Path) -> bool:
    """Return whether Kafka's tool says that the partition has moved."""
    output = run("ReassignPartitionsCommand", "--reassignment-json-file", plan, "--verify")
    return "Reassignment of partition clicks-0 is completed" in output.text


def test_partition_moves_while_a_client_writes(
    cluster: Cluster, kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    run = kafka_tools.against(cluster.bootstrap_servers)
    plan = tmp_path / "plan.json"
    assert replicas(cluster) == ([1, 2], {1, 2})
    writer = _Writer(cluster)
    try:
        writer.wait()
        # Both replicas change places with others, and the leader leaves.
        for target in ([3, 2], [1, 3], [2, 1, 3], [3]):
            move(run, plan, *target)
            eventually(lambda: is_complete(run, plan), "the partition has moved")
            assert replicas(cluster) == (target, set(target))
            writer.wait()
    finally:
        written = writer.stop()
    assert "No partition reassignments found." in run("ReassignPartitionsCommand", "--list").text
    assert consume(cluster, "clicks", "g", len(written)) == written
    for one, broker in cluster.brokers.items():
        eventually(
            lambda broker=broker, one=one: (broker.data_dir / "clicks-0").exists() == (one == 3),
            f"the log of broker {one}",
        )


def test_throttled_move_can_be_listed_and_cancelled(
    cluster: Cluster, kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    run = kafka_tools.against(cluster.bootstrap_servers)
    plan = tmp_path / "plan.json"
    # More than the first fetch of a follower returns.
    values = [bytes([number]) * 900_000 for number in range(4)]
    produce(cluster, "clicks", *values)
    move(run, plan, 1, 3, throttle=1)
    listed = run("ReassignPartitionsCommand", "--list").text
    assert "clicks-0: replicas: 1,3,2. adding: 3. removing: 2." in listed, listed
    # The replicas in sync are not throttled.
    produce(cluster, "clicks", b"4")
    assert replicas(cluster) == ([1, 3, 2], {1, 2})
    cancel = ("--reassignment-json-file", plan, "--cancel")
    cancelled = run("ReassignPartitionsCommand", *cancel).text
    assert "Successfully cancelled partition reassignment for: clicks-0" in cancelled, cancelled
    eventually(lambda: replicas(cluster) == ([1, 2], {1, 2}), "the replicas are those of before")
    # The tool has removed the throttle.
    move(run, plan, 1, 3)
    eventually(lambda: is_complete(run, plan), "the partition has moved")
    assert consume(cluster, "clicks", "g", 5) == [*values, b"4"]
