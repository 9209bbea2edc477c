"""Kafka's own tools for topics, logs, users and the cluster, against one broker."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from plogd.testing.broker_process import BrokerProcess
from tests.helpers.outside_broker import outside_broker
from tests.helpers.programs.confluent import create_topic, produce
from tests.helpers.programs.kafka_tools import KafkaTools, RunTool, broker_id, offsets

# Recent enough that retention keeps the records.
START_MS = int(time.time() * 1000) - 3_600_000
RECORDS = 10
RECORD_BYTES = 100


@pytest.fixture
def filled(broker: BrokerProcess, topic: str) -> str:
    """A topic with two partitions; the first has one record per millisecond."""
    create_topic(broker.bootstrap_servers, topic, 2)
    messages = [
        {"value": b"x" * RECORD_BYTES, "partition": 0, "timestamp": START_MS + i}
        for i in range(RECORDS)
    ]
    assert set(produce(broker.bootstrap_servers, topic, messages)) == {None}
    return topic


def test_offsets_are_found_by_position_and_by_time(run: RunTool, filled: str) -> None:
    assert offsets(run, filled) == {0: RECORDS, 1: 0}
    assert offsets(run, filled, "--time", "earliest") == {0: 0, 1: 0}
    assert offsets(run, filled, "--time", "earliest-local") == {0: 0, 1: 0}
    assert offsets(run, filled, "--time", "max-timestamp", "--partitions", "0") == {0: 9}
    assert offsets(run, filled, "--time", str(START_MS + 4)) == {0: 4}
    assert offsets(run, filled, "--time", str(START_MS + 99)) == {}


def test_records_are_deleted_up_to_an_offset(run: RunTool, filled: str, tmp_path: Path) -> None:
    def delete(offset: int) -> str:
        plan = tmp_path / f"to-{offset}.json"
        partition = {"topic": filled, "partition": 0, "offset": offset}
        plan.write_text(json.dumps({"version": 1, "partitions": [partition]}))
        return run("DeleteRecordsCommand", "--offset-json-file", plan).stdout

    assert f"partition: {filled}-0\tlow_watermark: 4" in delete(4)
    assert "OffsetOutOfRangeException" in delete(RECORDS + 1)
    assert offsets(run, filled, "--time", "earliest") == {0: 4, 1: 0}
    # -1 means the high watermark, so all records are deleted.
    assert f"low_watermark: {RECORDS}" in delete(-1)
    assert offsets(run, filled, "--time", "earliest") == {0: RECORDS, 1: 0}
    assert offsets(run, filled) == {0: RECORDS, 1: 0}


def test_log_directories_list_the_size_of_each_partition(run: RunTool, filled: str) -> None:
    out = run("LogDirsCommand", "--describe", "--topic-list", filled).stdout
    [line] = [line for line in out.splitlines() if line.startswith("{")]
    [broker] = json.loads(line)["brokers"]
    assert str(broker["broker"]) == broker_id(run)
    [log_dir] = broker["logDirs"]
    assert log_dir["error"] is None
    sizes = {each["partition"]: each["size"] for each in log_dir["partitions"]}
    assert sizes.keys() == {f"{filled}-0", f"{filled}-1"}
    assert sizes[f"{filled}-0"] > RECORDS * RECORD_BYTES
    assert sizes[f"{filled}-1"] == 0
    assert {each["offsetLag"] for each in log_dir["partitions"]} == {0}
    assert {each["isFuture"] for each in log_dir["partitions"]} == {False}


def test_topic_gets_more_partitions_but_never_fewer(run: RunTool, filled: str) -> None:
    assert run("TopicCommand", "--alter", "--topic", filled, "--partitions", "5").code == 0
    assert "PartitionCount: 5" in run("TopicCommand", "--describe", "--topic", filled).stdout
    assert offsets(run, filled) == {0: RECORDS, 1: 0, 2: 0, 3: 0, 4: 0}
    fewer = run("TopicCommand", "--alter", "--topic", filled, "--partitions", "3")
    assert fewer.code != 0
    assert "has 5 partitions" in fewer.text or "would not be an increase" in fewer.text
    # The new partitions are usable.
    sent = run("ConsoleProducer", "--topic", filled, "--sync", stdin="more\n")
    assert sent.code == 0
    assert sum(offsets(run, filled).values()) == RECORDS + 1


def test_every_api_is_usable_by_kafkas_own_client(run: RunTool) -> None:
    out = run("BrokerApiVersionsCommand").stdout
    usable = {
        int(key): int(version)
        for key, version in re.findall(r"\w+\((\d+)\): .*\[usable: (\d+)\]", out)
    }
    groups = {8, 9, 10, 11, 12, 13, 14, 15, 16, 42, 47}
    admin = {19, 20, 21, 23, 32, 33, 35, 37, 43, 44, 45, 46, 55, 57, 60, 61, 74, 75}
    security = {29, 30, 31, 48, 49, 50, 51}
    assert usable.keys() >= {0, 1, 2, 3, 18, 22} | groups | admin | security


def test_compatibility_test_of_the_java_client_passes(
    run: RunTool, new_topic: Callable[[], str]
) -> None:
    """The Java test also creates a topic named newtopic and waits until it is listed."""
    run("TopicCommand", "--delete", "--topic", "newtopic", "--if-exists")
    yes = (
        "--offsets-for-times-supported", "--cluster-id-supported", "--create-topics-supported",
        "--describe-acls-supported", "--describe-configs-supported",
        "--idempotent-producer-supported",
    )  # fmt: skip
    done = run(
        "ClientCompatibilityTest", "--topic", new_topic(), "--num-cluster-nodes", "1",
        "--expect-record-too-large-exception", "false",
        *(word for option in yes for word in (option, "true")),
    )  # fmt: skip
    assert done.code == 0, done.text
    assert "SUCCESS." in done.stdout


def test_quotas_and_scram_users_are_stored_and_described(run: RunTool, topic: str) -> None:
    user = ("--user", topic)
    rates = "producer_byte_rate=1048576,consumer_byte_rate=2097152"
    assert run("ConfigCommand", "--alter", *user, "--add-config", rates).code == 0
    password = "SCRAM-SHA-256=[iterations=4096,password=secret]"
    assert run("ConfigCommand", "--alter", *user, "--add-config", password).code == 0
    description = run("ConfigCommand", "--describe", *user).stdout
    assert (
        f"Quota configs for user-principal '{topic}' are consumer_byte_rate=2097152.0, "
        "producer_byte_rate=1048576.0"
    ) in description
    assert f"for user-principal '{topic}' are SCRAM-SHA-256=iterations=4096" in description
    assert "secret" not in description

    for names in ("consumer_byte_rate", "producer_byte_rate", "SCRAM-SHA-256"):
        assert run("ConfigCommand", "--alter", *user, "--delete-config", names).code == 0
    description = run("ConfigCommand", "--describe", *user).stdout
    assert "byte_rate" not in description
    assert "SCRAM" not in description

    client = ("--client", topic)
    run("ConfigCommand", "--alter", *client, "--add-config", "request_percentage=50")
    description = run("ConfigCommand", "--describe", *client).stdout
    assert f"Quota configs for client-id '{topic}' are request_percentage=50.0" in description
    run("ConfigCommand", "--alter", *client, "--delete-config", "request_percentage")


def test_acls_are_stored_matched_and_removed(run: RunTool, topic: str) -> None:
    def acls(command: str, *options: str) -> list[str]:
        done = run("AclCommand", command, *options)
        if outside_broker() is not None and "No Authorizer is configured" in done.text:
            pytest.skip("the broker at hand has no authorizer.class.name")
        assert done.code == 0, done.text
        return re.findall(r"\((principal=.+)\)", done.stdout)

    on_topic = ("--topic", topic)
    on_groups = ("--group", topic, "--resource-pattern-type", "prefixed")
    allow_ann = ("--allow-principal", "User:ann", "--allow-host", "10.0.0.1")
    acls("--add", *allow_ann, "--operation", "Read", "--operation", "Describe", *on_topic)
    acls("--add", "--deny-principal", "User:bob", "--operation", "All", *on_groups)
    anns = "principal=User:ann, host=10.0.0.1, operation={}, permissionType=ALLOW"
    bobs = "principal=User:bob, host=*, operation=ALL, permissionType=DENY"
    assert sorted(acls("--list", *on_topic)) == [anns.format("DESCRIBE"), anns.format("READ")]
    assert acls("--list", "--topic", f"{topic}-other") == []
    matching = ("--group", f"{topic}-other", "--resource-pattern-type", "match")
    assert acls("--list", *matching) == [bobs]
    assert {bobs, anns.format("READ")} <= set(acls("--list"))

    acls("--remove", "--force", *allow_ann, "--operation", "Read", *on_topic)
    assert acls("--list", *on_topic) == [anns.format("DESCRIBE")]
    acls("--remove", "--force", *on_topic)
    acls("--remove", "--force", *on_groups)
    assert acls("--list", *on_topic) == acls("--list", *matching) == []


def test_quorum_has_one_voter_which_is_its_leader(run: RunTool) -> None:
    status = run("MetadataQuorumCommand", "describe", "--status").stdout
    fields = dict(re.findall(r"(\w+): +(.+)", status))
    assert fields["LeaderId"] == broker_id(run)
    assert int(fields["HighWatermark"]) > 0
    [row] = run("MetadataQuorumCommand", "describe", "--replication").stdout.splitlines()[1:]
    node, _, end, lag, _, _, role = row.split()
    assert (node, lag, role) == (broker_id(run), "0", "Leader")
    assert int(end) > 0


def test_elections_and_reassignments_change_nothing(
    run: RunTool, filled: str, tmp_path: Path
) -> None:
    partition = ("--topic", filled, "--partition", "0")
    elected = run("LeaderElectionCommand", "--election-type", "preferred", *partition)
    assert f"Valid replica already elected for partitions {filled}-0" in elected.stdout

    plan = tmp_path / "plan.json"
    replicas = {"topic": filled, "partition": 0, "replicas": [int(broker_id(run))]}
    plan.write_text(json.dumps({"version": 1, "partitions": [replicas]}))
    assign = ("ReassignPartitionsCommand", "--reassignment-json-file", plan)
    assert f"started partition reassignment for {filled}-0" in run(*assign, "--execute").stdout
    assert f"Reassignment of partition {filled}-0 is completed." in run(*assign, "--verify").stdout
    assert "No partition reassignments found." in run("ReassignPartitionsCommand", "--list").stdout


def test_producers_of_a_partition_are_described(run: RunTool, topic: str) -> None:
    run("TopicCommand", "--create", "--topic", topic)
    run("ConsoleProducer", "--topic", topic, "--sync", stdin="one\ntwo\n")
    out = run("TransactionsCommand", "describe-producers", "--topic", topic, "--partition", "0")
    [row] = out.stdout.splitlines()[1:]
    _, epoch, _, last_sequence, _, transaction = row.split()
    assert (epoch, last_sequence, transaction) == ("0", "1", "None")


def test_partitions_quotas_and_users_survive_a_restart(
    kafka_tools: KafkaTools, own_broker: BrokerProcess, topic: str
) -> None:
    run = kafka_tools.against(own_broker.bootstrap_servers)
    create_topic(own_broker.bootstrap_servers, topic)
    run("TopicCommand", "--alter", "--topic", topic, "--partitions", "3")
    run("ConfigCommand", "--alter", "--user", "ann", "--add-config", "producer_byte_rate=1024")
    password = "SCRAM-SHA-512=[password=secret]"
    run("ConfigCommand", "--alter", "--user", "ann", "--add-config", password)

    own_broker.kill()
    own_broker.restart()
    assert "PartitionCount: 3" in run("TopicCommand", "--describe", "--topic", topic).stdout
    user = run("ConfigCommand", "--describe", "--user", "ann").stdout
    assert "producer_byte_rate=1024.0" in user
    assert "SCRAM-SHA-512=iterations=4096" in user
