"""plog/cli/topics/command.py and topics/report.py against a simulated broker."""

from __future__ import annotations

import json

import pytest

from plog.cli.topics.command import configure
from plog.cli.topics.report import Partition
from plog.client.admin.values import PartitionDescription, Reassignment
from tests.helpers.sim.sim_broker import create_topic
from tests.unit.cli.conftest import CliSite, Run


@pytest.fixture
def topics(site: CliSite) -> Run:
    """The tool, connected to a broker."""
    return site.tool(configure)


def test_topic_is_created_described_and_deleted(topics: Run) -> None:
    created = topics(
        "--create", "--topic", "orders", "--partitions", 2, "--config", "retention.ms=5000"
    )
    assert (created.code, created.out) == (0, "Created topic orders.\n")
    described = topics("--describe", "--topic", "orders")
    head, first, second = described.lines
    name, topic_id, *rest = head.split("\t")
    assert name == "Topic: orders"
    assert len(topic_id) == len("TopicId: ") + 22
    assert rest == ["PartitionCount: 2", "ReplicationFactor: 1", "Configs: retention.ms=5000"]
    assert first.startswith("\tTopic: orders\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: ")
    assert "\tLastKnownElr: " in first
    assert second.startswith("\tTopic: orders\tPartition: 1\t")
    assert topics("--delete", "--topic", "orders").code == 0
    assert topics("--list").lines == []


def test_name_with_period_prints_a_warning(topics: Run) -> None:
    warning, created = topics("--create", "--topic", "a.b").lines
    assert warning.startswith("WARNING: Due to limitations in metric names")
    assert created == "Created topic a.b."


def test_existing_topic_is_an_error_unless_if_not_exists_is_given(topics: Run) -> None:
    topics("--create", "--topic", "a")
    again = topics("--create", "--topic", "a")
    assert again.code == 1
    assert "already exists" in again.err
    assert len(again.err.splitlines()) == 1
    assert topics("--create", "--topic", "a", "--if-not-exists")[:2] == (0, "")


def test_topics_are_listed_by_pattern(site: CliSite, topics: Run) -> None:
    for name in ("orders", "clicks", "orders-2"):
        create_topic(site.broker, name)
    assert topics("--list").lines == ["clicks", "orders", "orders-2"]
    assert topics("--list", "--topic", "orders.*").lines == ["orders", "orders-2"]
    assert topics("--list", "--topic", "clicks,orders", "--exclude-internal").lines == [
        "clicks",
        "orders",
    ]
    first, *_ = json.loads(topics("--list", "--json").out)
    assert (first["topic"], first["internal"]) == ("clicks", False)


def test_alter_adds_partitions(site: CliSite, topics: Run) -> None:
    create_topic(site.broker, "a")
    assert topics("--alter", "--topic", "a", "--partitions", 3)[:2] == (0, "")
    assert len(topics("--describe", "--topic", "a").lines) == 4
    fewer = topics("--alter", "--topic", "a", "--partitions", 2)
    assert fewer.code == 1
    assert topics(
        "--alter", "--topic", "a", "--partitions", 5, "--replica-assignment", "1,1,1,1,1"
    ).code == 0  # fmt: skip
    assert len(topics("--describe", "--topic", "a").lines) == 6


def test_topic_is_created_with_a_replica_assignment(topics: Run) -> None:
    assert topics("--create", "--topic", "a", "--replica-assignment", "1,1").code == 0
    unknown = topics("--create", "--topic", "b", "--replica-assignment", "7")
    assert unknown.code == 1


def test_delete_treats_a_period_in_a_name_literally(site: CliSite, topics: Run) -> None:
    for name in ("web.log", "web-log", "webxlog"):
        create_topic(site.broker, name)
    deleted = topics("--delete", "--topic", "web.log")
    assert (deleted.code, deleted.out) == (0, "Deleted topic web.log.\n")
    assert topics("--list").lines == ["web-log", "webxlog"]
    missing = topics("--delete", "--topic", "web.log")
    assert (missing.code, missing.err) == (1, "plog: Topic 'web.log' does not exist as expected\n")
    assert topics("--list").lines == ["web-log", "webxlog"]


@pytest.mark.parametrize(
    ("words", "deleted"),
    [
        (["web.log", "--regex"], ["web-log", "web.log"]),
        (["web[.-]log"], ["web-log", "web.log"]),
        (["web.*"], ["web-log", "web.log", "web.logs"]),
        (["web.log,orders"], ["orders", "web.log"]),
        (["web.log,o.*"], ["orders", "web.log"]),
        (["web.log,none", "--if-exists"], ["web.log"]),
    ],
)
def test_topics_are_deleted_by_names_and_patterns(
    site: CliSite, topics: Run, words: list[str], deleted: list[str]
) -> None:
    for name in ("web.log", "web-log", "web.logs", "orders"):
        create_topic(site.broker, name)
    done = topics("--delete", "--topic", *words)
    assert (done.code, sorted(done.lines)) == (0, [f"Deleted topic {name}." for name in deleted])


def test_no_topic_is_deleted_when_one_is_missing(site: CliSite, topics: Run) -> None:
    create_topic(site.broker, "a")
    missing = topics("--delete", "--topic", "a,none")
    assert (missing.code, missing.err) == (1, "plog: Topic 'none' does not exist as expected\n")
    assert topics("--list").lines == ["a"]


def test_alter_treats_a_period_in_a_name_literally(site: CliSite, topics: Run) -> None:
    create_topic(site.broker, "web.log")
    create_topic(site.broker, "web-log")
    assert topics("--alter", "--topic", "web.log", "--partitions", 3).code == 0
    assert len(topics("--describe", "--topic", "web-log").lines) == 2
    assert topics("--alter", "--topic", "web.log", "--regex", "--partitions", 4).code == 0
    assert len(topics("--describe", "--topic", "web-log").lines) == 5


def test_describe_accepts_patterns(site: CliSite, topics: Run) -> None:
    create_topic(site.broker, "web.log")
    create_topic(site.broker, "web-log")
    heads = [line for line in topics("--describe", "--topic", "web.log").lines if line[0] != "\t"]
    assert len(heads) == 2
    assert "--regex requires" in topics("--describe", "--regex").err


@pytest.mark.parametrize("action", ["--describe", "--delete", "--alter"])
def test_missing_topic_is_an_error_unless_if_exists_is_given(topics: Run, action: str) -> None:
    words = [action, "--topic", "none", *(["--partitions", 2] if action == "--alter" else [])]
    missing = topics(*words)
    assert missing.code == 1
    assert missing.err == "plog: Topic 'none' does not exist as expected\n"
    assert topics(*words, "--if-exists")[:2] == (0, "")


def test_topic_is_described_by_id(site: CliSite, topics: Run) -> None:
    create_topic(site.broker, "a")
    create_topic(site.broker, "b")
    _, second = json.loads(topics("--list", "--json").out)
    topic_id = second["topic_id"]
    assert topics("--describe", "--topic-id", topic_id).lines[0].startswith("Topic: b\t")
    missing = topics("--describe", "--topic-id", "AAAAAAAAAAAAAAAAAAAAAQ")
    assert "TopicId 'AAAAAAAAAAAAAAAAAAAAAQ' does not exist as expected" in missing.err
    assert topics("--describe", "--topic-id", "short").code == 1


def test_topics_with_overrides_filter_selects_topics(site: CliSite, topics: Run) -> None:
    create_topic(site.broker, "plain")
    create_topic(site.broker, "special", retention_ms="7")
    [line] = topics("--describe", "--topics-with-overrides").lines
    assert line.startswith("Topic: special\t")


def test_partition_filters_select_partitions(site: CliSite, topics: Run) -> None:
    create_topic(site.broker, "a")
    for option in ("--under-replicated-partitions", "--unavailable-partitions",
                   "--under-min-isr-partitions"):  # fmt: skip
        assert topics("--describe", option).lines == []
    [line] = topics("--describe", "--at-min-isr-partitions").lines
    assert line.startswith("\tTopic: a\tPartition: 0\t")


def test_describe_json_contains_partitions_and_settings(site: CliSite, topics: Run) -> None:
    create_topic(site.broker, "a", 2, retention_ms="7")
    [topic] = json.loads(topics("--describe", "--json").out)
    assert topic["topic"] == "a"
    assert topic["configs"] == {"retention.ms": "7"}
    assert [each["leader"] for each in topic["partitions"]] == [1, 1]


def test_json_contains_created_altered_and_deleted_topics(topics: Run) -> None:
    def result_of(*words: object) -> object:
        result = topics(*words, "--json")
        assert result.code == 0
        return json.loads(result.out)

    assert result_of("--create", "--topic", "a_b") == {"created": ["a_b"]}
    assert result_of("--create", "--topic", "a_b", "--if-not-exists") == {"created": []}
    assert result_of("--alter", "--topic", "a_b", "--partitions", 3) == {"altered": ["a_b"]}
    assert result_of("--delete", "--topic", "a_b") == {"deleted": ["a_b"]}


def _partition(isr: tuple[int, ...], leader: int | None = 1, **fields: object) -> Partition:
    about = PartitionDescription(
        partition=0, leader=leader, leader_epoch=0, replicas=(1, 2, 3), isr=isr, offline_replicas=()
    )
    values: dict[str, object] = {"reassignment": None, "min_isr": 2, "live_brokers": {1, 2, 3}}
    return Partition(about=about, **(values | fields))  # type: ignore[arg-type]  # a table


@pytest.mark.parametrize(
    ("partition", "reports"),
    [
        (_partition((1, 2, 3)), set()),
        (_partition((1, 2)), {"under-replicated", "at-min-isr"}),
        (_partition((1,)), {"under-replicated", "under-min-isr"}),
        (_partition((1, 2, 3), None), {"unavailable", "under-min-isr"}),
        (_partition((1, 2, 3), live_brokers={2, 3}), {"unavailable"}),
        (
            _partition(
                (1, 2),
                reassignment=Reassignment(
                    replicas=(1, 2, 3), adding_replicas=(3,), removing_replicas=()
                ),
            ),
            {"at-min-isr"},
        ),
    ],
)
def test_partition_is_selected_by_matching_filters(partition: Partition, reports: set[str]) -> None:
    names = ("under-replicated", "unavailable", "under-min-isr", "at-min-isr")
    assert {x for x in names if partition.is_reported([f"--{x}-partitions"])} == reports


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "exactly one of --list, --describe, --create, --alter and --delete"),
        ("--list --create --topic a", "exactly one of"),
        ("--create", "--create requires --topic"),
        ("--delete", "--delete requires --topic"),
        ("--alter --topic a", "--alter requires --partitions"),
        ("--list --partitions 3", "--partitions requires --create or --alter"),
        ("--describe --config a=b", "--config requires --create"),
        ("--create --topic a --if-exists", "--if-exists requires"),
        ("--create --topic a --replica-assignment 1 --partitions 2", "cannot be combined"),
        ("--list --topic-id x", "--topic-id requires --describe"),
        ("--describe --topics-with-overrides --unavailable-partitions", "--topics-with-overrides"),
        ("--alter --topic a --partitions 2 --delete-config x", "was removed"),
        ("--create --topic a --replication-factor 99999", "at most 32767"),
        ("--create --topic a --replica-assignment 1:1", "lists a broker twice"),
        ("--create --topic a --replica-assignment 1,1:2", "partition 1 has 2 brokers"),
        ("--create --topic a --replica-assignment x", "is not a list of brokers per partition"),
        ("--create --topic a --partitions 0", "0 is less than 1"),
        ("--describe --topic a(", "not a regular expression"),
    ],
)
def test_usage_error_is_one_line(topics: Run, line: str, message: str) -> None:
    result = topics(*line.split())
    assert result.code == 1
    assert message in result.err
    assert len(result.err.splitlines()) == 1
