"""plog/cli/reassign_partitions/command.py against a double of a cluster."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from plog.cli.reassign_partitions.command import configure
from plog.enums import ConfigResourceType
from plog.errors import ErrorCode
from plog.types import TopicPartition
from plog.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from plog.wire.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from tests.helpers.client.reassigning_cluster import LOG_DIR, OTHER_LOG_DIR, ReassigningCluster
from tests.unit.cli.conftest import Output, ReassignmentSite

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Tool:
    """The tool and its files, connected to a cluster with two partitions on brokers 1 and 2."""

    def __init__(self, site: ReassignmentSite, directory: Path) -> None:
        self._site = site
        self.cluster: ReassigningCluster = site.cluster
        self.cluster.add_topic("t", [1, 2], [2, 1])
        self.path = directory / "moves.json"

    def file(self, replicas: Mapping[TopicPartition, Sequence[int]], **more: object) -> Path:
        rows = [
            {"topic": each.topic, "partition": each.partition, "replicas": list(some), **more}
            for each, some in replicas.items()
        ]
        self.path.write_text(json.dumps({"version": 1, "partitions": rows}))
        return self.path

    def __call__(self, action: str, *words: object, file: Path | None = None) -> Output:
        named = () if file is None else ("--reassignment-json-file", file)
        return self._site.run(configure, action, *named, *words)

    def throttles(self, kind: ConfigResourceType) -> dict[str, dict[str, str]]:
        return {name: dict(x) for (of, name), x in self.cluster.configs.items() if of == kind}

    def copy_all(self) -> None:
        self.cluster.copy(1000)


@pytest.fixture
def tool(reassignment_site: ReassignmentSite, tmp_path: Path) -> Tool:
    return Tool(reassignment_site, tmp_path)


# -- execute, verify, cancel, list ---------------------------------------------------------------


def test_partition_is_moved_and_verified(tool: Tool) -> None:
    file = tool.file({T0: [3, 2]})
    started = tool("--execute", file=file)
    assert (started.code, started.err) == (0, "")
    assert started.lines == [
        "Current partition replica assignment",
        "",
        '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2],'
        '"log_dirs":["/data/a","/data/a"]}]}',
        "",
        "Save this to use as the --reassignment-json-file option during rollback",
        "Successfully started partition reassignment for t-0",
    ]
    assert tool("--list").lines == [
        "Current partition reassignments:",
        "t-0: replicas: 3,2,1. adding: 3. removing: 1.",
    ]
    assert tool("--verify", file=file).lines == [
        "Status of partition reassignment:",
        "Reassignment of partition t-0 is still in progress.",
        "",
    ]
    tool.copy_all()
    assert tool("--verify", file=file).lines == [
        "Status of partition reassignment:",
        "Reassignment of partition t-0 is completed.",
        "",
        "Clearing broker-level throttles on brokers 1,2,3",
        "Clearing topic-level throttles on topic t",
    ]
    assert tool("--list").lines == ["No partition reassignments found."]
    assert tool.cluster.replicas[T0] == (3, 2)


def test_current_replicas_name_no_directory_that_brokers_could_not_restore(tool: Tool) -> None:
    tool.cluster.unsupported = {AlterReplicaLogDirsRequest}
    file = tool.file({T0: [3, 2]})
    previous = json.loads(tool("--execute", "--json", file=file).out)["previous"]
    assert previous["partitions"][0]["log_dirs"] == ["any", "any"]


def test_current_replicas_name_no_directory_of_a_broker_that_is_not_available(tool: Tool) -> None:
    tool.cluster.kill(2)
    file = tool.file({T0: [3, 1]})
    previous = json.loads(tool("--execute", "--json", file=file).out)["previous"]
    assert previous["partitions"][0]["log_dirs"] == [LOG_DIR, "any"]


def test_throttle_is_set_before_the_move_and_removed_after_it(tool: Tool) -> None:
    file = tool.file({T0: [3, 2]})
    started = tool("--execute", "--throttle", 5000, file=file)
    assert started.lines[5:7] == [
        "Warning: You must run --verify periodically, until the reassignment completes, to ensure"
        " the throttle is removed.",
        "The inter-broker throttle limit was set to 5000 B/s",
    ]
    rates = {
        "leader.replication.throttled.rate": "5000",
        "follower.replication.throttled.rate": "5000",
    }
    lists = {
        "leader.replication.throttled.replicas": "0:1,0:2",
        "follower.replication.throttled.replicas": "0:3",
    }
    assert tool.throttles(ConfigResourceType.TOPIC) == {"t": lists}
    assert tool.throttles(ConfigResourceType.BROKER) == {"1": rates, "2": rates, "3": rates}
    kinds = [type(request) for _, request in tool.cluster.asked]
    assert kinds[-1] is AlterPartitionReassignmentsRequest
    # Until the move has ended, and with --preserve-throttles, the throttle remains.
    tool("--verify", file=file)
    assert tool.throttles(ConfigResourceType.TOPIC) == {"t": lists}
    tool.copy_all()
    tool("--verify", "--preserve-throttles", file=file)
    assert tool.throttles(ConfigResourceType.TOPIC) == {"t": lists}
    tool("--verify", file=file)
    assert tool.cluster.configs == {}


def test_second_move_must_be_additional(tool: Tool) -> None:
    tool("--execute", file=tool.file({T0: [3, 2]}))
    file = tool.file({T1: [3, 1]})
    rejected = tool("--execute", file=file)
    assert rejected.code == 1
    assert rejected.err.startswith(
        "plog: Cannot execute because there is an existing partition assignment.  Use --additional"
    )
    assert tool("--execute", "--additional", "--throttle", 7, file=file).code == 0
    # The list of a topic contains the ongoing move, too.
    lists = tool.throttles(ConfigResourceType.TOPIC)["t"]
    assert lists["follower.replication.throttled.replicas"] == "0:3,1:3"


def test_move_is_cancelled_with_its_throttle(tool: Tool) -> None:
    file = tool.file({T0: [3, 2], T1: [2, 1]})
    tool("--execute", "--throttle", 5000, file=file)
    assert tool("--cancel", file=file).lines == [
        "Successfully cancelled partition reassignment for: t-0",
        "None of the specified partition moves are active.",
        "Clearing broker-level throttles on brokers 1,2,3",
        "Clearing topic-level throttles on topic t",
    ]
    assert tool.cluster.replicas[T0] == (1, 2)
    assert tool.cluster.configs == {}
    assert tool("--cancel", file=file).lines[0] == (
        "None of the specified partition reassignments are active."
    )
    assert tool("--verify", file=file).lines[1] == (
        "There is no active reassignment of partition t-0, but replica set is 1,2 rather than 3,2."
    )


def test_added_replica_is_cancelled_too(tool: Tool) -> None:
    file = tool.file({T0: [1, 2, 3]})
    tool("--execute", file=file)
    assert tool("--cancel", file=file).lines[0] == (
        "Successfully cancelled partition reassignment for: t-0"
    )


def test_number_of_replicas_can_be_protected(tool: Tool) -> None:
    file = tool.file({T0: [1, 2, 3]})
    rejected = tool("--execute", "--disallow-replication-factor-change", file=file)
    assert rejected.code == 1
    assert rejected.err.startswith("plog: Error reassigning partition(s): t-0: t-0:")
    assert tool("--execute", file=file).code == 0


def test_errors_name_the_broker_and_the_partition(tool: Tool) -> None:
    unknown = tool("--execute", file=tool.file({T0: [1, 9]}))
    assert unknown.code == 1
    assert unknown.err == "plog: Unknown broker id 9: the available brokers are 1,2,3\n"
    missing = tool("--execute", file=tool.file({TopicPartition("t", 7): [1], T0: [1]}))
    assert (missing.code, missing.err) == (1, "plog: Unable to find partition: t-7\n")
    assert tool.cluster.sent(AlterPartitionReassignmentsRequest) == []


def test_documents_are_printed_as_json(tool: Tool) -> None:
    file = tool.file({T0: [3, 2]})
    started = json.loads(tool("--execute", "--json", file=file).out)
    assert started["started"] == ["t-0"]
    assert started["previous"]["partitions"][0]["replicas"] == [1, 2]
    [listed] = json.loads(tool("--list", "--json").out)
    assert (listed["partition"], listed["adding_replicas"]) == (0, [3])
    [state] = json.loads(tool("--verify", "--json", file=file).out)
    assert (state["done"], state["target_replicas"]) == (False, [3, 2])
    assert json.loads(tool("--cancel", "--json", file=file).out) == {"cancelled": ["t-0"]}


# -- log directories -----------------------------------------------------------------------------


def test_replica_is_moved_to_a_directory_and_back(tool: Tool) -> None:
    file = tool.file({T0: [1, 2]}, log_dirs=[OTHER_LOG_DIR, "any"])
    started = tool("--execute", "--replica-alter-log-dirs-throttle", 9, file=file)
    assert started.code == 0
    assert started.lines[-1].rstrip() == (
        f"Successfully started moving log directory to {OTHER_LOG_DIR} for replica t-0 with"
        " broker 1"
    )
    rate = {"replica.alter.log.dirs.io.max.bytes.per.second": "9"}
    assert tool.throttles(ConfigResourceType.BROKER) == {"1": rate}
    assert tool("--verify", file=file).lines[-1] == (
        "Reassignment of replica t-0-1 is still in progress."
    )
    cancelled = tool("--cancel", file=file)
    assert cancelled.lines[1].startswith(f"Successfully started moving log directory to {LOG_DIR}")
    assert tool("--verify", file=file).lines[2] == (
        f"Partition t-0 on broker 1 is not being moved from log dir {LOG_DIR} to {OTHER_LOG_DIR}."
    )
    tool.cluster.parts[T0].log_dirs[1] = OTHER_LOG_DIR
    assert tool("--verify", file=file).lines[2] == (
        "Reassignment of replica t-0-1 completed successfully."
    )


def test_replica_that_does_not_arrive_in_time_is_named(tool: Tool) -> None:
    file = tool.file({T0: [3, 2]}, log_dirs=[OTHER_LOG_DIR, "any"])
    tool.cluster.bytes_per_s = 0
    result = tool("--execute", "--timeout", 2000, file=file)
    assert result.code == 1
    assert result.err == ("plog: Timed out before log directory move could be started for: t-0-3\n")


def test_unknown_directory_is_named(tool: Tool) -> None:
    file = tool.file({T0: [1, 2]}, log_dirs=["/nowhere", "any"])
    result = tool("--execute", file=file)
    assert result.code == 1
    assert result.err.startswith("plog: Failed to alter dir for t-0-1: ")


# -- generate ------------------------------------------------------------------------------------


@pytest.fixture
def topics(tmp_path: Path) -> Path:
    path = tmp_path / "topics.json"
    path.write_text('{"topics": [{"topic": "t"}], "version": 1}')
    return path


def _generate(tool: Tool, topics: Path, brokers: str, *words: str) -> Output:
    return tool(
        "--generate", "--topics-to-move-json-file", topics, "--broker-list", brokers, *words
    )


def test_proposal_leaves_as_many_replicas_as_possible(tool: Tool, topics: Path) -> None:
    result = _generate(tool, topics, "1,2,3")
    assert result.lines[0] == "Current partition replica assignment"
    assert result.lines[2:4] == ["", "Proposed partition reassignment configuration"]
    before, after = (json.loads(result.lines[line])["partitions"] for line in (1, 4))
    assert [row["replicas"] for row in before] == [[1, 2], [2, 1]]
    changes = [
        set(new["replicas"]) - set(old["replicas"]) for old, new in zip(before, after, strict=True)
    ]
    assert sorted(map(len, changes)) == [0, 1]


def test_proposal_uses_only_the_listed_brokers(tool: Tool, topics: Path) -> None:
    document = json.loads(_generate(tool, topics, "3,1", "--json").out)
    replicas = [set(row["replicas"]) for row in document["proposed"]["partitions"]]
    assert replicas == [{1, 3}, {1, 3}]
    few = _generate(tool, topics, "3")
    assert few.code == 1
    assert few.err.startswith(
        "plog: cannot move the replicas of t-0, t-1: 2 replicas need 2 brokers, but only 1 can be"
    )


def test_proposal_requires_racks_of_all_brokers_or_none(tool: Tool, topics: Path) -> None:
    tool.cluster.racks |= {1: "a", 2: "b", 3: None}
    rejected = _generate(tool, topics, "1,2,3")
    assert rejected.code == 1
    assert rejected.err.startswith(
        "plog: Not all brokers have rack information. Add --disable-rack"
    )
    assert rejected.err.endswith("Brokers without a rack: 3\n")
    assert _generate(tool, topics, "1,2,3", "--disable-rack-aware").code == 0


def test_missing_topic_and_broker_are_named(tool: Tool, topics: Path) -> None:
    assert _generate(tool, topics, "1,8").err == (
        "plog: Unknown broker id 8: the available brokers are 1,2,3\n"
    )
    assert _generate(tool, topics, "1,1").err == "plog: --broker-list contains broker 1 twice\n"
    topics.write_text('{"topics": [{"topic": "x"}]}')
    assert _generate(tool, topics, "1").err == "plog: Topic x not found.\n"


# -- options -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("--verify", "--verify requires --reassignment-json-file"),
        ("--generate --broker-list 1", "--generate requires --topics-to-move-json-file"),
        ("--generate --topics-to-move-json-file x", "--generate requires --broker-list"),
        ("--list --throttle 5", "--throttle requires --execute"),
        ("--list --additional", "--additional requires --execute"),
        ("--list --preserve-throttles", "--preserve-throttles requires --verify or --cancel"),
        ("--list --verify", "specify exactly one of"),
    ],
)
def test_options_of_other_actions_are_rejected(tool: Tool, line: str, problem: str) -> None:
    result = tool(*line.split())
    assert result.code == 1
    assert result.err.startswith(f"plog: {problem}")


def test_broker_that_rejects_a_move_is_quoted(tool: Tool) -> None:
    tool.cluster.refuses[T0] = ErrorCode.REASSIGNMENT_IN_PROGRESS
    result = tool("--execute", file=tool.file({T0: [3, 2]}))
    assert result.code == 1
    assert result.err.startswith("plog: Error reassigning partition(s): t-0: ")
