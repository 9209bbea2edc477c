"""Partitions move between three real brokers, with Kafka's own tools, while a client writes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.clients import consume, produce
from tests.cluster.three_brokers import Cluster
from tests.cluster.writer import Writer
from tests.helpers.eventually import eventually
from tests.helpers.programs.kafka_tools import KafkaTools, RunTool


@pytest.fixture(scope="module")
def kafka_tools() -> Iterator[KafkaTools]:
    """Kafka's tools, in one JVM."""
    tools = KafkaTools.installed()
    yield tools
    tools.close()


@pytest.fixture
def topic(cluster: Cluster) -> str:
    """A topic on brokers 1 and 2."""
    return cluster.new_topic_on(1, 2)


def replicas(cluster: Cluster, topic: str) -> tuple[list[int], set[int]]:
    """Return the replicas and the ISR of the partition."""
    partition = cluster.described().topics[topic].partitions[0]
    return list(partition.replicas), set(partition.isrs)


class Move:
    """Moves of the partition with Kafka's tool; `plan` is its file."""

    def __init__(self, run: RunTool, plan: Path, topic: str) -> None:
        self._run = run
        self._plan = plan
        self._topic = topic

    def begin(self, *target: int, throttle: int | None = None) -> None:
        """Begin a move; `throttle` is in bytes per second."""
        moved = {"topic": self._topic, "partition": 0, "replicas": list(target)}
        self._plan.write_text(json.dumps({"version": 1, "partitions": [moved]}))
        options = [] if throttle is None else ["--throttle", str(throttle)]
        text = self._tool("--execute", *options)
        assert f"Successfully started partition reassignment for {self._topic}-0" in text, text

    def is_complete(self) -> bool:
        """Return whether the tool says that the partition has moved."""
        text = self._tool("--verify")
        return f"Reassignment of partition {self._topic}-0 is completed" in text

    def cancel(self) -> None:
        """Cancel the move."""
        text = self._tool("--cancel")
        expected = f"Successfully cancelled partition reassignment for: {self._topic}-0"
        assert expected in text, text

    def _tool(self, *words: str) -> str:
        file = ("--reassignment-json-file", self._plan)
        return self._run("ReassignPartitionsCommand", *file, *words).text


def test_partition_moves_while_a_client_writes(
    cluster: Cluster, topic: str, kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    run = kafka_tools.against(cluster.bootstrap_servers)
    move = Move(run, tmp_path / "plan.json", topic)
    assert replicas(cluster, topic) == ([1, 2], {1, 2})
    with Writer(cluster, topic) as writer:
        writer.wait()
        # Both replicas change places with others, and the leader leaves.
        for target in ([3, 2], [1, 3], [2, 1, 3], [3]):
            move.begin(*target)
            eventually(move.is_complete, "the partition has moved")
            assert replicas(cluster, topic) == (target, set(target))
            writer.wait()
    assert "No partition reassignments found." in run("ReassignPartitionsCommand", "--list").text
    assert consume(cluster, topic, topic, len(writer.written)) == writer.written
    for one, broker in cluster.brokers.items():
        log = broker.data_dir / f"{topic}-0"
        eventually(lambda log=log, one=one: log.exists() == (one == 3), f"the log of broker {one}")


def test_throttled_move_can_be_listed_and_cancelled(
    cluster: Cluster, topic: str, kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    run = kafka_tools.against(cluster.bootstrap_servers)
    move = Move(run, tmp_path / "plan.json", topic)
    # More than the first fetch of a follower returns.
    values = [bytes([number]) * 900_000 for number in range(4)]
    produce(cluster, topic, *values)
    move.begin(1, 3, throttle=1)
    listed = run("ReassignPartitionsCommand", "--list").text
    assert f"{topic}-0: replicas: 1,3,2. adding: 3. removing: 2." in listed, listed
    # The replicas in sync are not throttled.
    produce(cluster, topic, b"4")
    assert replicas(cluster, topic) == ([1, 3, 2], {1, 2})
    move.cancel()
    eventually(
        lambda: replicas(cluster, topic) == ([1, 2], {1, 2}), "the replicas are those of before"
    )
    # The tool has removed the throttle.
    move.begin(1, 3)
    eventually(move.is_complete, "the partition has moved")
    assert consume(cluster, topic, topic, 5) == [*values, b"4"]
