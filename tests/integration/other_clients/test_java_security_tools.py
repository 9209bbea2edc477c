"""AclCommand and ConfigCommand of Apache Kafka: ACLs, quotas and SCRAM credentials."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from plogd.testing.broker_process import BrokerProcess
from tests.helpers.programs.kafka_tools import KafkaTools

Run = Callable[..., str]


@pytest.fixture
def run(kafka_tools: KafkaTools, own_broker: BrokerProcess) -> Run:
    """A function that runs a tool against this test's broker."""

    def run_tool(tool: str, *arguments: str) -> str:
        server = ("--bootstrap-server", own_broker.bootstrap_servers)
        return kafka_tools.run(tool, *server, *arguments)

    return run_tool


def test_acl_command_adds_lists_and_removes(run: Run) -> None:
    added = run(
        "AclCommand", "--add", "--allow-principal", "User:alice", "--producer", "--topic", "pay",
        "--resource-pattern-type", "prefixed",
    )  # fmt: skip
    assert "operation=WRITE" in added
    run(
        "AclCommand", "--add", "--deny-principal", "User:*", "--deny-host", "192.0.2.1",
        "--operation", "All", "--cluster",
    )  # fmt: skip
    matching = run(
        "AclCommand", "--list", "--topic", "payments", "--resource-pattern-type", "match"
    )
    assert "name=pay, patternType=PREFIXED" in matching
    for operation in ("WRITE", "DESCRIBE", "CREATE"):
        assert f"principal=User:alice, host=*, operation={operation}" in matching
    assert "kafka-cluster" not in matching
    everything = run("AclCommand", "--list")
    assert "resourceType=CLUSTER, name=kafka-cluster" in everything
    assert "principal=User:*, host=192.0.2.1, operation=ALL, permissionType=DENY" in everything

    run(
        "AclCommand", "--remove", "--force", "--topic", "pay", "--resource-pattern-type",
        "prefixed",
    )  # fmt: skip
    left = run("AclCommand", "--list")
    assert "alice" not in left
    assert "kafka-cluster" in left


def test_config_command_sets_describes_and_removes_quotas(
    run: Run, own_broker: BrokerProcess
) -> None:
    pair = ("--entity-type", "users", "--entity-name", "alice", "--entity-type", "clients",
            "--entity-default")  # fmt: skip
    rates = "producer_byte_rate=1024,consumer_byte_rate=2048,request_percentage=12.5"
    run("ConfigCommand", "--alter", *pair, "--add-config", rates)
    ip = ("--entity-type", "ips", "--entity-name", "192.0.2.1")
    run("ConfigCommand", "--alter", *ip, "--add-config", "connection_creation_rate=5")
    own_broker.kill()
    own_broker.restart()

    described = run("ConfigCommand", "--describe", *pair)
    assert "'alice'" in described
    for quota in ("producer_byte_rate=1024.0", "consumer_byte_rate=2048.0"):
        assert quota in described
    assert "request_percentage=12.5" in described
    assert "connection_creation_rate=5.0" in run("ConfigCommand", "--describe", *ip)

    run("ConfigCommand", "--alter", *pair, "--delete-config", "consumer_byte_rate")
    described = run("ConfigCommand", "--describe", *pair)
    assert "consumer_byte_rate" not in described
    assert "producer_byte_rate=1024.0" in described


def test_config_command_sets_describes_and_removes_scram_users(run: Run) -> None:
    alice = ("--entity-type", "users", "--entity-name", "alice")
    for password in (
        "SCRAM-SHA-256=[iterations=8192,password=pencil]",
        "SCRAM-SHA-512=[password=pencil]",
    ):  # Kafka accepts one change per user in a request.
        run("ConfigCommand", "--alter", *alice, "--add-config", password)
    described = run("ConfigCommand", "--describe", *alice)
    assert "SCRAM-SHA-256=iterations=8192" in described
    assert "SCRAM-SHA-512=iterations=4096" in described
    run("ConfigCommand", "--alter", *alice, "--delete-config", "SCRAM-SHA-256")
    described = run("ConfigCommand", "--describe", *alice)
    assert "SCRAM-SHA-256" not in described
    assert "SCRAM-SHA-512" in described


def test_java_producer_reports_its_throttle_time(run: Run) -> None:
    all_users = ("--entity-type", "users", "--entity-default")
    run("ConfigCommand", "--alter", *all_users, "--add-config", "producer_byte_rate=50000")
    out = run(
        "ProducerPerformance", "--topic", "t", "--num-records", "70", "--record-size", "10000",
        "--throughput", "-1", "--print-metrics",
    )  # fmt: skip
    assert "70 records sent" in out
    [line] = [x for x in out.splitlines() if "produce-throttle-time-max" in x]
    assert float(line.rsplit(":", 1)[1]) > 0


def test_kafka_reads_the_stored_quotas_and_users(
    run: Run, kafka_tools: KafkaTools, own_broker: BrokerProcess
) -> None:
    run("AclCommand", "--add", "--allow-principal", "User:alice", "--operation", "Read",
        "--topic", "t")  # fmt: skip
    alice = ("--entity-type", "users", "--entity-name", "alice")
    run("ConfigCommand", "--alter", *alice, "--add-config", "producer_byte_rate=1024")
    run("ConfigCommand", "--alter", *alice, "--add-config", "SCRAM-SHA-256=[password=pencil]")
    run("ConfigCommand", "--alter", *alice, "--delete-config", "SCRAM-SHA-256")
    run("AclCommand", "--remove", "--force", "--topic", "t")
    own_broker.stop()
    [segment] = sorted((own_broker.data_dir / "__cluster_metadata-0").glob("*.log"))
    dump = kafka_tools.run(
        "DumpLogSegments", "--cluster-metadata-decoder", "--skip-record-metadata", "--files",
        segment,
    )  # fmt: skip
    for record in (
        "ACCESS_CONTROL_ENTRY_RECORD",
        "REMOVE_ACCESS_CONTROL_ENTRY_RECORD",
        "CLIENT_QUOTA_RECORD",
        "USER_SCRAM_CREDENTIAL_RECORD",
        "REMOVE_USER_SCRAM_CREDENTIAL_RECORD",
    ):
        assert f'"type":"{record}"' in dump
    assert "isvalid: false" not in dump
