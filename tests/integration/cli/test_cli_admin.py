"""Admin tools print the same as Kafka's for the same command lines on one broker."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from plog.cli.main import load_tool, run_tool
from plogd.testing.broker_process import BrokerProcess
from tests.helpers.programs.confluent import consumer, produce
from tests.helpers.programs.kafka_tools import KafkaTools, RunTool

Plog = Callable[..., str]


@pytest.fixture
def plog(broker: BrokerProcess) -> Plog:
    """Runs a tool that must succeed and returns its output."""

    def run(tool: str, *words: str | Path) -> str:
        line = ["--bootstrap-server", broker.bootstrap_servers, *map(str, words)]
        if tool == "cluster":
            line = [line[2], *line[:2], *line[3:]]
        with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
            code = run_tool(tool, load_tool(tool), line)
        assert code == 0, err.getvalue()
        return out.getvalue()

    return run


def test_topics_print_the_same_as_kafkas_tool(run: RunTool, plog: Plog, topic: str) -> None:
    created = plog(
        "topics", "--create", "--topic", topic, "--partitions", "3", "--config", "retention.ms=5000"
    )
    assert created.endswith(f"Created topic {topic}.\n")
    words = ("--describe", "--topic", topic)
    assert plog("topics", *words) == run("TopicCommand", *words).stdout
    plog("topics", "--alter", "--topic", topic, "--partitions", "4")
    for words in (("--describe", "--topic", topic), ("--list", "--topic", f"{topic}.*")):
        assert plog("topics", *words) == run("TopicCommand", *words).stdout
    plog("topics", "--delete", "--topic", topic)
    assert topic not in plog("topics", "--list").split()


def test_configs_print_the_same_as_kafkas_tool(run: RunTool, plog: Plog, topic: str) -> None:
    plog("topics", "--create", "--topic", topic)
    done = plog("configs", "--alter", "--topic", topic, "--add-config", "min.insync.replicas=2")
    assert done == f"Completed updating config for topic {topic}.\n"
    for words in (
        ("--describe", "--topic", topic),
        ("--describe", "--topic", topic, "--all"),
        ("--describe", "--entity-type", "brokers", "--entity-default"),
        ("--describe", "--broker", "1"),
    ):
        assert plog("configs", *words) == run("ConfigCommand", *words).stdout
    for words in (
        ("--alter", "--topic", topic, "--delete-config", "min.insync.replicas"),
        # Deleted by the line above, or never set.
        ("--alter", "--topic", topic, "--delete-config", "min.insync.replicas,retention.ms"),
    ):
        assert plog("configs", *words) == run("ConfigCommand", *words).stdout
    plog("configs", "--alter", "--user", topic, "--add-config", "producer_byte_rate=1e7")
    words = ("--describe", "--user", topic)
    assert plog("configs", *words) == run("ConfigCommand", *words).stdout
    plog("configs", "--alter", "--user", topic, "--delete-config", "producer_byte_rate")


def test_get_offsets_and_delete_records_print_the_same_as_kafkas_tools(
    run: RunTool, plog: Plog, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    plog("topics", "--create", "--topic", topic, "--partitions", "2")
    messages = [{"value": b"%d" % i, "partition": 0} for i in range(5)]
    assert set(produce(broker.bootstrap_servers, topic, messages)) == {None}
    for time in ("latest", "earliest", "max-timestamp", "-1", "1"):
        words = ("--topic", topic, "--time", time)
        assert plog("get-offsets", *words) == run("GetOffsetShell", *words).stdout
    words = ("--topic-partitions", f"{topic}:0-1")
    assert plog("get-offsets", *words) == run("GetOffsetShell", *words).stdout
    file = tmp_path / "offsets.json"
    file.write_text(f'{{"partitions":[{{"topic":"{topic}","partition":0,"offset":2}}]}}')
    ours = plog("delete-records", "--offset-json-file", file)
    assert ours == run("DeleteRecordsCommand", "--offset-json-file", file).stdout


def test_consumer_groups_print_the_same_as_kafkas_tool(
    run: RunTool, plog: Plog, broker: BrokerProcess, topic: str
) -> None:
    plog("topics", "--create", "--topic", topic)
    assert set(produce(broker.bootstrap_servers, topic, [{"value": b"1"}] * 3)) == {None}
    group = f"{topic}-group"
    with consumer(broker.bootstrap_servers, group_id=group) as client:
        client.subscribe([topic])
        while not client.assignment():
            client.poll(0.1)
        client.commit(asynchronous=False, offsets=[_position(client, topic, 1)])
        for words in (
            ("--describe", "--group", group),
            ("--describe", "--group", group, "--verbose"),
            ("--describe", "--group", group, "--members"),
            ("--describe", "--group", group, "--members", "--verbose"),
            ("--describe", "--group", group, "--state"),
            ("--describe", "--group", group, "--state", "--verbose"),
        ):
            assert plog("consumer-groups", *words) == run("ConsumerGroupCommand", *words).stdout
    for words in (
        ("--describe", "--group", group),
        ("--describe", "--group", group, "--state"),
        ("--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--dry-run"),
        ("--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute"),
        ("--reset-offsets", "--group", group, "--all-topics", "--shift-by", "1", "--dry-run"),
        ("--reset-offsets", "--group", group, "--topic", topic, "--to-datetime",
         "2000-01-01T00:00:00.000", "--execute"),
        ("--reset-offsets", "--group", group, "--topic", topic, "--by-duration", "PT0S",
         "--dry-run"),
    ):  # fmt: skip
        assert plog("consumer-groups", *words) == run("ConsumerGroupCommand", *words).stdout
    for words in (("--list",), ("--list", "--state"), ("--list", "--type", "--state")):
        ours = plog("consumer-groups", *words).splitlines()
        assert sorted(ours) == sorted(run("ConsumerGroupCommand", *words).stdout.splitlines())
    words = ("--delete-offsets", "--group", group, "--topic", topic)
    assert run("ConsumerGroupCommand", *words).code == 0
    plog("consumer-groups", "--reset-offsets", "--group", group, "--topic", topic, "--to-latest",
         "--execute")  # fmt: skip
    done = plog("consumer-groups", "--delete", "--group", group)
    assert done == f"Deletion of requested consumer groups ('{group}') was successful.\n"


def _position(client: object, topic: str, offset: int) -> object:
    import confluent_kafka

    return confluent_kafka.TopicPartition(topic, 0, offset)


def test_cluster_features_and_api_versions_print_the_same_as_kafkas_tools(
    run: RunTool, plog: Plog, broker: BrokerProcess, kafka_tools: KafkaTools
) -> None:
    words = ("--bootstrap-server", broker.bootstrap_servers)
    for tool in ("cluster-id", "list-endpoints"):
        theirs = kafka_tools.attempt("ClusterTool", tool, *words).stdout
        assert plog("cluster", tool) == theirs, repr(theirs)
    theirs = kafka_tools.attempt(
        "ClusterTool", "list-endpoints", "--include-fenced-brokers", *words
    )
    ours = plog("cluster", "list-endpoints", "--include-fenced-brokers")
    assert ours == theirs.stdout, repr(theirs.stdout)
    theirs = run("FeatureCommand", "describe").stdout
    assert plog("features", "describe") == theirs, repr(theirs)
    ours, theirs = plog("broker-api-versions"), run("BrokerApiVersionsCommand").stdout
    served = re.compile(r"^\t(\w+)\((\d+)\): (\d+(?: to \d+)?)", re.MULTILINE)
    assert served.findall(ours) == served.findall(theirs)
    assert ours.splitlines()[0] == theirs.splitlines()[0]


def test_log_dirs_print_the_same_as_kafkas_tool(
    run: RunTool, plog: Plog, broker: BrokerProcess, topic: str
) -> None:
    import json

    plog("topics", "--create", "--topic", topic, "--partitions", "2")
    messages = [{"value": b"v", "partition": number} for number in range(2)]
    assert set(produce(broker.bootstrap_servers, topic, messages)) == {None}
    words = ("--describe", "--topic-list", topic)
    *ours, our_json = plog("log-dirs", *words).splitlines()
    *theirs, their_json = run("LogDirsCommand", *words).stdout.splitlines()
    assert ours == theirs
    assert _sorted(json.loads(our_json)) == _sorted(json.loads(their_json))


def _sorted(document: dict[str, object]) -> dict[str, object]:
    for broker in document["brokers"]:  # type: ignore[attr-defined]  # as JSON has it
        for log_dir in broker["logDirs"]:
            log_dir["partitions"].sort(key=lambda each: each["partition"])
    return document
