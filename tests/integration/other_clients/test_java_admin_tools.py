"""Apache Kafka's own admin tools: more partitions, deleted records, sizes, quorum, elections."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from plogd.testing.broker_process import BrokerProcess
from tests.helpers.programs.confluent import create_topic, produce
from tests.helpers.programs.kafka_tools import KafkaTools, ToolOutput

Attempt = Callable[..., ToolOutput]


@pytest.fixture
def attempt(kafka_tools: KafkaTools, broker: BrokerProcess) -> Attempt:
    """A function that runs a tool against the shared broker; the tool may fail."""

    def attempt_tool(tool: str, *arguments: str | Path) -> ToolOutput:
        server = ("--bootstrap-server", broker.bootstrap_servers)
        return kafka_tools.attempt(tool, *server, *arguments)

    return attempt_tool


@pytest.fixture
def run(attempt: Attempt) -> Callable[..., str]:
    """A function that runs a tool, checks that it succeeds and returns its output."""

    def run_tool(tool: str, *arguments: str | Path) -> str:
        output = attempt(tool, *arguments)
        assert output.code == 0, output.stdout + output.stderr
        return output.stdout

    return run_tool


def _file(tmp_path: Path, partitions: list[dict[str, object]]) -> Path:
    path = tmp_path / "partitions.json"
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return path


def _offsets(run: Callable[..., str], topic: str, time: str) -> dict[int, int]:
    lines = run("GetOffsetShell", "--topic", topic, "--time", time).split()
    return {int(number): int(offset) for _, number, offset in (x.split(":") for x in lines)}


def test_topic_gets_more_partitions(
    run: Callable[..., str], attempt: Attempt, broker: BrokerProcess, topic: str
) -> None:
    create_topic(broker.bootstrap_servers, topic, 2)
    run("TopicCommand", "--alter", "--topic", topic, "--partitions", "4")
    described = run("TopicCommand", "--describe", "--topic", topic)
    assert "PartitionCount: 4" in described
    assert len(re.findall(r"Partition: \d\tLeader: \d", described)) == 4
    refused = attempt("TopicCommand", "--alter", "--topic", topic, "--partitions", "3")
    assert refused.code != 0
    assert "InvalidPartitions" in refused.stderr


def test_records_are_deleted_up_to_an_offset(
    run: Callable[..., str], broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    create_topic(broker.bootstrap_servers, topic, 3)
    messages = [{"value": b"v", "partition": number % 3} for number in range(30)]
    produce(broker.bootstrap_servers, topic, messages)
    asked = [
        {"topic": topic, "partition": number, "offset": offset}
        for number, offset in enumerate((4, -1, 11))
    ]
    output = run("DeleteRecordsCommand", "--offset-json-file", _file(tmp_path, asked))
    assert f"partition: {topic}-0\tlow_watermark: 4" in output
    assert f"partition: {topic}-1\tlow_watermark: 10" in output
    assert f"partition: {topic}-2\terror" in output
    assert "OffsetOutOfRange" in output
    assert _offsets(run, topic, "earliest") == {0: 4, 1: 10, 2: 0}
    assert _offsets(run, topic, "latest") == {0: 10, 1: 10, 2: 10}


def test_log_directories_list_the_size_of_each_partition(
    run: Callable[..., str], broker: BrokerProcess, topic: str
) -> None:
    create_topic(broker.bootstrap_servers, topic, 2)
    produce(broker.bootstrap_servers, topic, [{"value": b"v" * 1000, "partition": 1}])
    out = run("LogDirsCommand", "--describe", "--topic-list", topic)
    [node] = json.loads(out.splitlines()[-1])["brokers"]
    [log_dir] = node["logDirs"]
    assert log_dir["error"] is None
    sizes = {one["partition"]: one["size"] for one in log_dir["partitions"]}
    assert sizes[f"{topic}-0"] == 0
    assert 1000 < sizes[f"{topic}-1"] < 1200
    assert {(one["offsetLag"], one["isFuture"]) for one in log_dir["partitions"]} == {(0, False)}


def test_quorum_has_one_voter(own_broker: BrokerProcess, kafka_tools: KafkaTools) -> None:
    server = ("--bootstrap-server", own_broker.bootstrap_servers)
    status = kafka_tools.run("MetadataQuorumCommand", *server, "describe", "--status")
    fields = {
        key: value.strip() for key, _, value in (x.partition(":") for x in status.split("\n"))
    }
    assert (fields["LeaderId"], fields["LeaderEpoch"], fields["MaxFollowerLag"]) == ("1", "0", "0")
    [voter] = json.loads(fields["CurrentVoters"])
    assert (voter["id"], voter["endpoints"]) == (1, [f"PLAINTEXT://{own_broker.bootstrap_servers}"])
    assert voter["directoryId"] in (own_broker.data_dir / "meta.properties").read_text()

    create_topic(own_broker.bootstrap_servers, "one-more", 2)
    replicas = kafka_tools.run("MetadataQuorumCommand", *server, "describe", "--replication")
    node, _, log_end_offset, lag, *_ = replicas.splitlines()[1].split()
    assert (node, lag) == ("1", "0")
    assert int(log_end_offset) == int(fields["HighWatermark"]) + 3


def test_features_are_described_but_cannot_be_changed(
    run: Callable[..., str], attempt: Attempt
) -> None:
    assert re.search(
        r"metadata.version\s+SupportedMinVersion: 3.5-IV2\s+SupportedMaxVersion: 3.5-IV2\s+"
        r"FinalizedVersionLevel: 3.5-IV2",
        run("FeatureCommand", "describe"),
    )
    run("FeatureCommand", "upgrade", "--feature", "metadata.version=11", "--dry-run")
    refused = attempt("FeatureCommand", "upgrade", "--feature", "transaction.version=2")
    assert refused.code != 0
    assert "this broker does not support the feature" in refused.stdout + refused.stderr


def test_election_is_not_needed(run: Callable[..., str], broker: BrokerProcess, topic: str) -> None:
    create_topic(broker.bootstrap_servers, topic)
    election = ("LeaderElectionCommand", "--election-type", "preferred")
    output = run(*election, "--topic", topic, "--partition", "0")
    assert f"Valid replica already elected for partitions {topic}-0" in output
    run(*election, "--all-topic-partitions")


def test_partition_can_be_reassigned_to_its_current_replicas(
    run: Callable[..., str], broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    create_topic(broker.bootstrap_servers, topic)
    file = _file(tmp_path, [{"topic": topic, "partition": 0, "replicas": [1]}])
    output = run("ReassignPartitionsCommand", "--reassignment-json-file", file, "--execute")
    assert f"Successfully started partition reassignment for {topic}-0" in output
    verified = run("ReassignPartitionsCommand", "--reassignment-json-file", file, "--verify")
    assert f"Reassignment of partition {topic}-0 is completed" in verified
    assert "No partition reassignments found" in run("ReassignPartitionsCommand", "--list")


def test_producers_of_a_partition_are_described(
    run: Callable[..., str], broker: BrokerProcess, topic: str
) -> None:
    messages = [{"value": b"v", "partition": 0}] * 3
    produce(broker.bootstrap_servers, topic, messages, {"enable.idempotence": True})
    out = run("TransactionsCommand", "describe-producers", "--topic", topic, "--partition", "0")
    _, row = out.splitlines()[:2]
    _, epoch, coordinator_epoch, last_sequence, _, transaction = row.split()
    assert (epoch, coordinator_epoch, last_sequence, transaction) == ("0", "-1", "2", "None")


def test_cluster_id_and_endpoints_are_listed(
    run: Callable[..., str], kafka_tools: KafkaTools, broker: BrokerProcess
) -> None:
    host, _, port = broker.bootstrap_servers.partition(":")
    server = ("--bootstrap-server", broker.bootstrap_servers)
    assert "Cluster ID: " in kafka_tools.run("ClusterTool", "cluster-id", *server)
    output = kafka_tools.run("ClusterTool", "list-endpoints", *server)
    assert output.splitlines()[1].split() == ["1", host, port, "null", "unfenced", "broker"]
    wrong = ("list-endpoints", "--bootstrap-controller", broker.bootstrap_servers)
    refused = kafka_tools.attempt("ClusterTool", *wrong)
    assert refused.code != 0
    assert "MismatchedEndpointType" in refused.stderr
