"""Apache Kafka's own tools: topics, console clients, the load generator and dumps of plog's files.

DumpLogSegments verifies the log format: it reads segments, indexes and snapshots offline.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from plogd.testing.broker_process import BrokerProcess
from tests.helpers.programs.kafka_tools import KafkaTools

SMALL_SEGMENTS = {"log.segment.bytes": str(1 << 20)}


@pytest.fixture
def run(kafka_tools: KafkaTools, broker: BrokerProcess) -> Callable[..., str]:
    """A function that runs a tool against the shared broker."""

    def run_tool(tool: str, *arguments: str, stdin: str = "") -> str:
        server = ("--bootstrap-server", broker.bootstrap_servers)
        return kafka_tools.run(tool, *server, *arguments, stdin=stdin)

    return run_tool


def test_topics_are_created_listed_described_and_deleted(
    run: Callable[..., str], kafka_tools: KafkaTools, broker: BrokerProcess, topic: str
) -> None:
    created = run(
        "TopicCommand", "--create", "--topic", topic, "--partitions", "3", "--config",
        "retention.ms=86400000",
    )  # fmt: skip
    assert f"Created topic {topic}" in created
    assert topic in run("TopicCommand", "--list").split()

    head, *partitions = run("TopicCommand", "--describe", "--topic", topic).splitlines()
    assert "PartitionCount: 3" in head
    assert "ReplicationFactor: 1" in head
    assert "retention.ms=86400000" in head
    assert len(partitions) == 3
    fields = [[field.partition(":")[2].strip() for field in x.split("\t")] for x in partitions]
    assert [number for _, _, number, *_ in fields] == ["0", "1", "2"]
    assert all(leader == replicas == isr for *_, leader, replicas, isr, _, _ in fields)

    again = kafka_tools.attempt(
        "TopicCommand", "--bootstrap-server", broker.bootstrap_servers, "--create", "--topic", topic
    )
    assert again.code != 0
    assert "already exists" in again.stdout + again.stderr

    run("TopicCommand", "--delete", "--topic", topic)
    assert topic not in run("TopicCommand", "--list").split()


def test_console_producer_and_consumer_exchange_records(
    run: Callable[..., str], topic: str
) -> None:
    with_keys = ["--reader-property", "parse.key=true", "--reader-property", "key.separator=:"]
    run("ConsoleProducer", "--topic", topic, stdin="one\ntwo\nthree\n")
    run("ConsoleProducer", "--topic", topic, "--sync", *with_keys, stdin="k1:four\nk2:five\n")
    out = run(
        "ConsoleConsumer", "--topic", topic, "--partition", "0", "--offset", "1",
        "--max-messages", "4", "--formatter-property", "print.key=true",
        "--formatter-property", "print.offset=true",
    )  # fmt: skip
    assert out.splitlines() == [
        "Offset:1\tnull\ttwo",
        "Offset:2\tnull\tthree",
        "Offset:3\tk1\tfour",
        "Offset:4\tk2\tfive",
    ]


def test_console_consumer_waits_at_the_end(
    kafka_tools: KafkaTools, run: Callable[..., str], broker: BrokerProcess, topic: str
) -> None:
    run("ConsoleProducer", "--topic", topic, stdin="only\n")
    out = kafka_tools.attempt(
        "ConsoleConsumer", "--bootstrap-server", broker.bootstrap_servers, "--topic", topic,
        "--partition", "0", "--offset", "earliest", "--timeout-ms", "2000",
    )  # fmt: skip
    assert out.stdout.split() == ["only"]
    assert "Processed a total of 1 messages" in out.stderr + out.stdout


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_kafka_reads_files_of_every_codec(
    kafka_tools: KafkaTools, start_broker: Callable[..., BrokerProcess], codec: str
) -> None:
    """Kafka's dump tool accepts all files that a load test and a clean stop leave."""
    broker = start_broker(SMALL_SEGMENTS)
    _produce(kafka_tools, broker, "dumped", 20_000, codec)
    broker.stop()
    _assert_kafka_reads(kafka_tools, broker.data_dir / "dumped-0", 20_000, codec)


def test_kafka_reads_files_after_a_kill_and_a_restart(
    kafka_tools: KafkaTools, start_broker: Callable[..., BrokerProcess]
) -> None:
    broker = start_broker(SMALL_SEGMENTS)
    _produce(kafka_tools, broker, "recovered", 10_000, "lz4")
    broker.kill()
    broker.restart()
    _produce(kafka_tools, broker, "recovered", 10_000, "lz4")
    broker.stop()
    _assert_kafka_reads(kafka_tools, broker.data_dir / "recovered-0", 20_000, "lz4")


def test_kafka_reads_the_metadata_log(
    kafka_tools: KafkaTools, start_broker: Callable[..., BrokerProcess]
) -> None:
    broker = start_broker()
    server = ("--bootstrap-server", broker.bootstrap_servers)
    kafka_tools.run("TopicCommand", *server, "--create", "--topic", "ours", "--partitions", "2")
    broker.stop()
    [segment] = sorted((broker.data_dir / "__cluster_metadata-0").glob("*.log"))
    dump = kafka_tools.run(
        "DumpLogSegments",
        "--cluster-metadata-decoder",
        "--skip-record-metadata",
        "--files",
        segment,
    )
    assert '"name":"ours"' in dump
    assert dump.count('"type":"PARTITION_RECORD"') == 2
    assert "isvalid: false" not in dump


def _produce(
    tools: KafkaTools, broker: BrokerProcess, topic: str, records: int, codec: str
) -> None:
    out = tools.run(
        "ProducerPerformance", "--topic", topic, "--num-records", str(records),
        "--record-size", "300", "--throughput", "-1", "--bootstrap-server",
        broker.bootstrap_servers, "--command-property", f"compression.type={codec}", "acks=all",
    )  # fmt: skip
    assert f"{records} records sent" in out


def _assert_kafka_reads(tools: KafkaTools, partition: Path, records: int, codec: str) -> None:
    segments = sorted(partition.glob("*.log"))
    assert codec != "none" or len(segments) > 3, "expected more than one segment"
    dump = tools.run("DumpLogSegments", "--deep-iteration", "--files", _comma_list(segments))
    assert dump.count("| offset: ") == records
    assert dump.count(f"compresscodec: {codec} ") > 0
    assert "isvalid: false" not in dump
    assert "mismatch" not in dump.lower()
    assert "non-consecutive" not in dump.lower()

    indexes = sorted([*partition.glob("*.index"), *partition.glob("*.timeindex")])
    assert len(indexes) == 2 * len(segments)
    checked = tools.run("DumpLogSegments", "--index-sanity-check", "--files", _comma_list(indexes))
    assert checked.count("passed sanity check") == len(indexes)
    verified = tools.run("DumpLogSegments", "--verify-index-only", "--files", _comma_list(indexes))
    assert "mismatch" not in verified.lower()

    snapshots = sorted(partition.glob("*.snapshot"))
    assert snapshots, "a clean stop did not write a snapshot of the producer state"
    assert "producerId: " in tools.run("DumpLogSegments", "--files", snapshots[-1])


def _comma_list(paths: list[Path]) -> str:
    return ",".join(map(str, paths))
