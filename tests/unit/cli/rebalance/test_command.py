"""plog/cli/rebalance against a double of a cluster: plans, progress, interruptions and errors."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from plog.cli.reassign_partitions import command as reassign_partitions
from plog.cli.rebalance.command import configure
from plog.enums import ConfigResourceType
from plog.errors import ErrorCode
from plog.types import TopicPartition
from plog.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from plog.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from plog.wire.messages.elect_leaders import ElectLeadersRequest
from plog.wire.schema import ApiMessage
from tests.helpers.client.reassigning_cluster import ReassigningCluster
from tests.unit.cli.conftest import Output, ReassignmentSite


class Rebalance:
    """The tool, connected to a cluster whose third broker has no replicas."""

    def __init__(self, site: ReassignmentSite) -> None:
        self.site = site
        self.cluster: ReassigningCluster = site.cluster
        self.cluster.add_topic("t", *[[1, 2], [2, 1]] * 3)

    def __call__(self, *words: object) -> Output:
        return self.site.run(configure, *words)

    def counts(self) -> list[int]:
        """Return the number of replicas of each broker."""
        counts = Counter(one for some in self.cluster.replicas.values() for one in some)
        return [counts[broker] for broker in (1, 2, 3)]

    def led(self) -> list[int]:
        """Return the number of partitions that each broker leads."""
        counts = Counter(self.cluster.leaders_now.values())
        return [counts[broker] for broker in (1, 2, 3)]


@pytest.fixture
def rebalance(reassignment_site: ReassignmentSite) -> Rebalance:
    return Rebalance(reassignment_site)


def test_replicas_and_leaders_are_balanced(rebalance: Rebalance) -> None:
    result = rebalance()
    assert (result.code, result.err) == (0, "")
    assert rebalance.counts() == [4, 4, 4]
    assert rebalance.led() == [2, 2, 2]
    assert result.lines[-1].startswith("Done: moved replicas of ")
    assert "(400 B)" in result.lines[-1]
    again = rebalance()
    assert again.lines[-2:] == [
        "The replicas and preferred leaders are already distributed as planned.",
        "Done: moved replicas of 0 partitions (0 B), changed only the preferred leaders of 0,"
        " elected 0 leaders.",
    ]


def test_dry_run_prints_the_plan_and_changes_nothing(rebalance: Rebalance) -> None:
    before = rebalance.cluster.replicas
    result = rebalance("--dry-run")
    assert result.code == 0
    assert rebalance.cluster.replicas == before
    assert rebalance.cluster.sent(AlterPartitionReassignmentsRequest) == []
    assert result.lines[0].split() == [
        "TOPIC", "PARTITION", "COPIED", "BYTES", "REPLICAS", "NEW", "REPLICAS",
    ]  # fmt: skip
    brokers = [line.split() for line in result.lines if line.startswith(("1 ", "2 ", "3 "))]
    assert brokers == [
        ["1", "-", "6", "3", "4", "2"],
        ["2", "-", "6", "3", "4", "2"],
        ["3", "-", "0", "0", "4", "2"],
    ]
    assert "which copies 400 B" in result.lines[-1]


def test_plan_is_a_document_that_reassign_partitions_accepts(
    rebalance: Rebalance, tmp_path: Path
) -> None:
    path = tmp_path / "plan.json"
    path.write_text(rebalance("--dry-run", "--json").out)
    assert json.loads(path.read_text())["copied_bytes"] == 400
    started = rebalance.site.run(
        reassign_partitions.configure, "--execute", "--reassignment-json-file", path
    )
    assert started.code == 0
    rebalance.cluster.copy(1000)
    assert rebalance.counts() == [4, 4, 4]


def test_leaders_return_to_preferred_replicas_without_any_move(rebalance: Rebalance) -> None:
    rebalance()
    for part in rebalance.cluster.parts.values():
        part.leader = part.replicas[1]
    rebalance.cluster.asked.clear()
    result = rebalance()
    assert result.lines[-1] == (
        "Done: moved replicas of 0 partitions (0 B), changed only the preferred leaders of 0,"
        " elected 6 leaders."
    )
    assert rebalance.cluster.sent(AlterPartitionReassignmentsRequest) == []
    assert rebalance.led() == [2, 2, 2]


def test_only_some_partitions_move_at_the_same_time(rebalance: Rebalance) -> None:
    most = 0

    def observe(now_s: float) -> None:
        nonlocal most
        moving = [x for x in rebalance.cluster.parts.values() if x.moving is not None]
        most = max(most, len(moving))

    rebalance.cluster.on_sleep = observe
    rebalance.cluster.bytes_per_s = 20
    assert rebalance("--parallel", 2).code == 0
    assert most == 2
    assert rebalance.counts() == [4, 4, 4]


def test_throttle_lasts_as_long_as_the_moves(rebalance: Rebalance) -> None:
    seen: list[dict[str, str]] = []
    key = (ConfigResourceType.BROKER, "3")
    rebalance.cluster.on_sleep = lambda _: seen.append(dict(rebalance.cluster.configs[key]))
    result = rebalance("--throttle", 5000)
    assert seen[0]["follower.replication.throttled.rate"] == "5000"
    assert rebalance.cluster.configs == {}
    assert result.err == "plog: removed the throttles\n"


def _interrupt_at(rebalance: Rebalance, time_s: float) -> None:
    def on_sleep(now_s: float) -> None:
        if now_s >= time_s:
            rebalance.cluster.on_sleep = lambda _: None
            os.kill(os.getpid(), signal.SIGINT)

    rebalance.cluster.on_sleep = on_sleep


def test_interrupted_run_says_what_is_left_and_the_next_run_continues(
    rebalance: Rebalance,
) -> None:
    _interrupt_at(rebalance, 1.5)
    result = rebalance("--parallel", 1, "--throttle", 5000)
    assert result.code == 130
    assert "interrupted: 1 partitions are done, 1 are being moved by the controller" in result.err
    assert "run 'plog rebalance' again" in result.err
    assert "the throttle remains until a run has finished, or starts without --thr" in result.err
    moving = [one for one, part in rebalance.cluster.parts.items() if part.moving]
    assert len(moving) == 1
    # The next run does not start the same move again, but it waits for it.
    rebalance.cluster.asked.clear()
    again = rebalance()
    assert again.code == 0
    started = {
        TopicPartition(topic.name, each.partition_index)
        for request in rebalance.cluster.sent(AlterPartitionReassignmentsRequest)
        for topic in request.topics
        for each in topic.partitions
    }
    assert moving[0] not in started
    assert rebalance.counts() == [4, 4, 4]
    assert rebalance.led() == [2, 2, 2]
    assert rebalance.cluster.configs == {}


def test_throttle_of_an_interrupted_run_is_removed_before_a_run_without_one(
    rebalance: Rebalance,
) -> None:
    _interrupt_at(rebalance, 0.5)
    assert rebalance("--throttle", 5000).code == 130
    assert rebalance.cluster.configs
    seen: list[int] = []
    rebalance.cluster.on_sleep = lambda _: seen.append(len(rebalance.cluster.configs))
    assert rebalance().code == 0
    assert set(seen) == {0}


def test_throttle_of_an_operator_remains(rebalance: Rebalance) -> None:
    key = (ConfigResourceType.TOPIC, "t")
    own = {"leader.replication.throttled.replicas": "*"}
    rebalance.cluster.configs[key] = dict(own)
    assert rebalance().code == 0
    assert rebalance.cluster.configs == {key: own}


def test_move_that_another_client_cancels_is_an_error(rebalance: Rebalance) -> None:
    def cancel(now_s: float) -> None:
        rebalance.cluster.on_sleep = lambda _: None
        next(x for x in rebalance.cluster.parts.values() if x.moving).moving = None

    rebalance.cluster.on_sleep = cancel
    result = rebalance()
    assert result.code == 1
    assert "another client has changed the replicas to " in result.err
    assert rebalance().code == 0
    assert rebalance.counts() == [4, 4, 4]


def test_brokers_that_receive_the_new_replicas_late_are_no_error(rebalance: Rebalance) -> None:
    cluster = rebalance.cluster
    answer = cluster.answer
    before = answer(1, DescribeTopicPartitionsRequest(topics=[]))
    stale = 5

    def late(node_id: int, request: ApiMessage) -> ApiMessage:
        nonlocal stale
        has_moved = cluster.sent(AlterPartitionReassignmentsRequest)
        if isinstance(request, DescribeTopicPartitionsRequest) and has_moved and stale:
            stale -= 1
            return before
        return answer(node_id, request)

    cluster.answer = late
    result = rebalance()
    assert (result.code, result.err, stale) == (0, "", 0)
    assert rebalance.led() == [2, 2, 2]


def test_leaders_are_elected_by_the_plan_if_a_broker_describes_earlier_replicas(
    rebalance: Rebalance,
) -> None:
    cluster = rebalance.cluster
    answer = cluster.answer
    before = answer(1, DescribeTopicPartitionsRequest(topics=[]))

    def late(node_id: int, request: ApiMessage) -> ApiMessage:
        # The first description is for the plan, and the second one, after the moves, is up to date.
        # The third one, for the elections, comes from a broker that is late.
        described = cluster.sent(DescribeTopicPartitionsRequest)
        is_third = isinstance(request, DescribeTopicPartitionsRequest) and len(described) == 3
        return before if is_third else answer(node_id, request)

    cluster.answer = late
    assert rebalance().code == 0
    assert rebalance.led() == [2, 2, 2]


def test_rejected_partition_does_not_stop_the_others(rebalance: Rebalance) -> None:
    plan = json.loads(rebalance("--dry-run", "--json").out)["partitions"]
    first = TopicPartition("t", plan[0]["partition"])
    rebalance.cluster.refuses[first] = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    result = rebalance()
    assert result.code == 1
    assert result.err.startswith(f"plog: {first}: ")
    assert sum(rebalance.counts()) == 12
    assert rebalance.counts()[2] >= 3


def test_broker_that_stops_during_the_moves_is_named_once(rebalance: Rebalance) -> None:
    cluster = rebalance.cluster

    def stop_and_start(now_s: float) -> None:
        if now_s == 0.5:
            cluster.kill(3)
        if now_s == 3:
            cluster.racks[3] = None

    cluster.on_sleep = stop_and_start
    result = rebalance()
    assert result.code == 0
    assert result.err == ("plog: broker 3 is not available; moves to it continue when it is\n")
    assert rebalance.counts() == [4, 4, 4]


def test_missing_broker_prevents_a_plan(rebalance: Rebalance) -> None:
    rebalance.cluster.kill(2)
    result = rebalance()
    assert result.code == 1
    assert result.err == (
        "plog: cannot balance the cluster: broker 2 is not available, and has 6 replicas; start it,"
        " or move its replicas with 'plog broker drain 2'\n"
    )


def test_replica_that_is_not_in_sync_does_not_become_a_leader(rebalance: Rebalance) -> None:
    rebalance()
    for part in rebalance.cluster.parts.values():
        part.isr = [one for one in part.isr if one != 3]
        if part.replicas[0] == 3:
            part.replicas = (part.replicas[1], 3)
        part.leader = part.replicas[0]
    assert rebalance().code == 0
    assert rebalance.led()[2] == 0
    assert rebalance.cluster.sent(ElectLeadersRequest)[1:] == []


def test_json_document_contains_the_plan_and_the_outcome(rebalance: Rebalance) -> None:
    document = json.loads(rebalance("--json").out)
    assert len(document["moved"]) == len(document["partitions"])
    assert document["errors"] == {}
    assert [each["new_replicas"] for each in document["brokers"]] == [4, 4, 4]
