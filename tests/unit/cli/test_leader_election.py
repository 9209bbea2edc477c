"""plog/cli/leader_election.py against a double of a cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plog.cli.leader_election import configure
from plog.enums import ElectionType
from plog.errors import ClusterAuthorizationFailed, ErrorCode
from plog.types import TopicPartition
from plog.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from tests.helpers.client.reassigning_cluster import Part
from tests.unit.cli.conftest import Output, ReassignmentSite


class LeaderElection:
    """The tool, connected to a cluster with three partitions."""

    def __init__(self, site: ReassignmentSite) -> None:
        self.site = site
        self.cluster = site.cluster
        self.cluster.add_topic("t", [1, 2], [2, 3], [3, 1])
        self.part(0).leader = 2  # Not the preferred leader.
        self.part(2).leader, self.part(2).isr = 1, [1]  # The preferred leader is not in sync.

    def part(self, number: int) -> Part:
        return self.cluster.parts[TopicPartition("t", number)]

    def __call__(self, *words: object) -> Output:
        return self.site.run(configure, *words)


@pytest.fixture
def election(reassignment_site: ReassignmentSite) -> LeaderElection:
    return LeaderElection(reassignment_site)


def test_preferred_leader_of_one_partition_is_elected(election: LeaderElection) -> None:
    result = election("--election-type", "preferred", "--topic", "t", "--partition", "0")
    assert (result.code, result.err) == (0, "")
    assert result.lines == ["Successfully completed leader election (PREFERRED) for partitions t-0"]
    assert election.part(0).leader == 1
    # Case does not matter, as in Kafka's tool.
    again = election("--election-type", "PREFERRED", "--topic", "t", "--partition", "0")
    assert again.code == 0
    assert again.lines == ["Valid replica already elected for partitions t-0"]


def test_all_partitions_that_need_an_election_are_elected(election: LeaderElection) -> None:
    result = election("--election-type", "preferred", "--all-topic-partitions")
    assert result.code == 1
    assert result.lines[0] == (
        "Successfully completed leader election (PREFERRED) for partitions t-0"
    )
    assert result.lines[1].startswith(
        "Error completing leader election (PREFERRED) for partition: t-2: t-2:"
    )
    assert result.err == "plog: 1 replica(s) could not be elected\n"
    [request] = election.cluster.sent(ElectLeadersRequest)
    assert request.topic_partitions is None


def test_partitions_are_read_from_a_file(election: LeaderElection, tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    rows = [{"topic": "t", "partition": 0}, {"topic": "t", "partition": 1}]
    path.write_text(json.dumps({"partitions": rows}))
    result = election("--election-type", "unclean", "--path-to-json-file", path, "--json")
    assert [(each["partition"], each["elected"]) for each in json.loads(result.out)] == [
        (0, True),
        (1, False),
    ]
    [request] = election.cluster.sent(ElectLeadersRequest)
    assert request.election_type == ElectionType.UNCLEAN
    path.write_text(json.dumps({"partitions": [rows[0], *rows]}))
    result = election("--election-type", "unclean", "--path-to-json-file", path)
    assert result.code == 1
    assert f"plog: cannot read {path}: partitions lists partitions twice: t-0;" in result.err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ((), "specify exactly one of --all-topic-partitions, --topic and --path-to-json-file"),
        (
            ("--all-topic-partitions", "--topic", "t"),
            "specify exactly one of --all-topic-partitions, --topic and --path-to-json-file",
        ),
        (("--topic", "t"), "--topic requires --partition"),
        (("--all-topic-partitions", "--partition", "0"), "--partition requires --topic"),
    ],
)
def test_options_that_do_not_fit_are_rejected(
    election: LeaderElection, words: tuple[str, ...], problem: str
) -> None:
    result = election("--election-type", "preferred", *words)
    assert (result.code, result.err) == (1, f"plog: {problem}\n")


def test_unknown_election_type_is_rejected(election: LeaderElection) -> None:
    result = election("--election-type", "fair", "--all-topic-partitions")
    assert result.code == 1
    assert "'fair' is neither preferred nor unclean" in result.err


def test_client_without_the_permission_gets_kafkas_message(election: LeaderElection) -> None:
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    election.cluster.answer = lambda *_: ElectLeadersResponse(error_code=code)
    result = election("--election-type", "preferred", "--all-topic-partitions")
    assert ClusterAuthorizationFailed.code == code
    assert (result.code, result.err) == (1, "plog: Not authorized to perform leader election\n")
