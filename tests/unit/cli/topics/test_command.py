"""plog/cli/topics/command.py and topics/report.py at a whole broker, in Kafka's words."""

from __future__ import annotations

import json

import pytest

from plog.cli.topics.command import configure
from plog.cli.topics.report import Partition
from plog.client.admin.values import PartitionDescription, Reassignment
from tests.helpers.sim_broker import create_topic
from tests.unit.cli.conftest import CliSite, Run


@pytest.fixture
def topics(site: CliSite) -> Run:
    """The tool."""
    return site.tool(configure)


def test_a_topic_is_created_described_and_deleted(topics: Run) -> None:
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


def test_a_name_that_may_collide_is_warned_of(topics: Run) -> None:
    warning, created = topics("--create", "--topic", "a.b").lines
    assert warning.startswith("WARNING: Due to limitations in metric names")
    assert created == "Created topic a.b."


def test_a_topic_that_is_there_is_an_error_unless_that_is_fine(topics: Run) -> None:
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


def test_a_topic_gets_more_partitions(site: CliSite, topics: Run) -> None:
    create_topic(site.broker, "a")
    assert topics("--alter", "--topic", "a", "--partitions", 3)[:2] == (0, "")
    assert len(topics("--describe", "--topic", "a").lines) == 4
    fewer = topics("--alter", "--topic", "a", "--partitions", 2)
    assert fewer.code == 1
    assert topics(
        "--alter", "--topic", "a", "--partitions", 5, "--replica-assignment", "1,1,1,1,1"
    ).code == 0  # fmt: skip
    assert len(topics("--describe", "--topic", "a").lines) == 6


def test_a_topic_is_created_on_chosen_brokers(topics: Run) -> None:
    assert topics("--create", "--topic", "a", "--replica-assignment", "1,1").code == 0
    elsewhere = topics("--create", "--topic", "b", "--replica-assignment", "7")
    assert elsewhere.code == 1


def test_deleting_a_name_deletes_no_topic_that_it_would_match_as_a_pattern(
    site: CliSite, topics: Run
) -> None:
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
def test_several_topics_are_deleted_by_names_and_by_patterns(
    site: CliSite, topics: Run, words: list[str], deleted: list[str]
) -> None:
    for name in ("web.log", "web-log", "web.logs", "orders"):
        create_topic(site.broker, name)
    done = topics("--delete", "--topic", *words)
    assert (done.code, sorted(done.lines)) == (0, [f"Deleted topic {name}." for name in deleted])


def test_nothing_is_deleted_when_one_of_the_names_is_missing(site: CliSite, topics: Run) -> None:
    create_topic(site.broker, "a")
    missing = topics("--delete", "--topic", "a,none")
    assert (missing.code, missing.err) == (1, "plog: Topic 'none' does not exist as expected\n")
    assert topics("--list").lines == ["a"]


def test_altering_a_name_alters_no_topic_that_it_would_match_as_a_pattern(
    site: CliSite, topics: Run
) -> None:
    create_topic(site.broker, "web.log")
    create_topic(site.broker, "web-log")
    assert topics("--alter", "--topic", "web.log", "--partitions", 3).code == 0
    assert len(topics("--describe", "--topic", "web-log").lines) == 2
    assert topics("--alter", "--topic", "web.log", "--regex", "--partitions", 4).code == 0
    assert len(topics("--describe", "--topic", "web-log").lines) == 5


def test_describing_takes_patterns_as_kafka_does(site: CliSite, topics: Run) -> None:
    create_topic(site.broker, "web.log")
    create_topic(site.broker, "web-log")
    heads = [line for line in topics("--describe", "--topic", "web.log").lines if line[0] != "\t"]
    assert len(heads) == 2
    assert "--regex requires" in topics("--describe", "--regex").err


@pytest.mark.parametrize("action", ["--describe", "--delete", "--alter"])
def test_a_topic_that_is_not_there_is_an_error_unless_that_is_fine(
    topics: Run, action: str
) -> None:
    words = [action, "--topic", "none", *(["--partitions", 2] if action == "--alter" else [])]
    missing = topics(*words)
    assert missing.code == 1
    assert missing.err == "plog: Topic 'none' does not exist as expected\n"
    assert topics(*words, "--if-exists")[:2] == (0, "")


def test_a_topic_is_described_by_its_id(site: CliSite, topics: Run) -> None:
    create_topic(site.broker, "a")
    create_topic(site.broker, "b")
    _, second = json.loads(topics("--list", "--json").out)
    topic_id = second["topic_id"]
    assert topics("--describe", "--topic-id", topic_id).lines[0].startswith("Topic: b\t")
    missing = topics("--describe", "--topic-id", "AAAAAAAAAAAAAAAAAAAAAQ")
    assert "TopicId 'AAAAAAAAAAAAAAAAAAAAAQ' does not exist as expected" in missing.err
    assert topics("--describe", "--topic-id", "short").code == 1


def test_only_topics_with_settings_of_their_own_are_described(site: CliSite, topics: Run) -> None:
    create_topic(site.broker, "plain")
    create_topic(site.broker, "special", retention_ms="7")
    [line] = topics("--describe", "--topics-with-overrides").lines
    assert line.startswith("Topic: special\t")


def test_only_partitions_in_trouble_are_described(site: CliSite, topics: Run) -> None:
    create_topic(site.broker, "a")
    for option in ("--under-replicated-partitions", "--unavailable-partitions",
                   "--under-min-isr-partitions"):  # fmt: skip
        assert topics("--describe", option).lines == []
    [line] = topics("--describe", "--at-min-isr-partitions").lines
    assert line.startswith("\tTopic: a\tPartition: 0\t")


def test_a_program_gets_json(site: CliSite, topics: Run) -> None:
    create_topic(site.broker, "a", 2, retention_ms="7")
    [topic] = json.loads(topics("--describe", "--json").out)
    assert topic["topic"] == "a"
    assert topic["configs"] == {"retention.ms": "7"}
    assert [each["leader"] for each in topic["partitions"]] == [1, 1]


def test_a_program_hears_in_json_what_was_done(topics: Run) -> None:
    def told(*words: object) -> object:
        ended = topics(*words, "--json")
        assert ended.code == 0
        return json.loads(ended.out)

    assert told("--create", "--topic", "a_b") == {"created": ["a_b"]}
    assert told("--create", "--topic", "a_b", "--if-not-exists") == {"created": []}
    assert told("--alter", "--topic", "a_b", "--partitions", 3) == {"altered": ["a_b"]}
    assert told("--delete", "--topic", "a_b") == {"deleted": ["a_b"]}


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
def test_what_is_wrong_with_a_partition(partition: Partition, reports: set[str]) -> None:
    names = ("under-replicated", "unavailable", "under-min-isr", "at-min-isr")
    assert {x for x in names if partition.is_reported([f"--{x}-partitions"])} == reports


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("", "exactly one of --list, --describe, --create, --alter or --delete"),
        ("--list --create --topic a", "exactly one of"),
        ("--create", "--create needs --topic"),
        ("--delete", "--delete needs --topic"),
        ("--alter --topic a", "--alter requires --partitions"),
        ("--list --partitions 3", "--partitions requires --create or --alter"),
        ("--describe --config a=b", "--config requires --create"),
        ("--create --topic a --if-exists", "--if-exists requires"),
        ("--create --topic a --replica-assignment 1 --partitions 2", "exclude each other"),
        ("--list --topic-id x", "--topic-id requires --describe"),
        ("--describe --topics-with-overrides --unavailable-partitions", "--topics-with-overrides"),
        ("--alter --topic a --partitions 2 --delete-config x", "was removed"),
        ("--create --topic a --replication-factor 99999", "at most 32767"),
        ("--create --topic a --replica-assignment 1:1", "names a broker twice"),
        ("--create --topic a --replica-assignment 1,1:2", "partition 1 has 2 brokers"),
        ("--create --topic a --replica-assignment x", "is not a list of brokers per partition"),
        ("--create --topic a --partitions 0", "0 is less than 1"),
        ("--describe --topic a(", "not a regular expression"),
    ],
)
def test_options_that_make_no_sense_are_one_line(topics: Run, line: str, told: str) -> None:
    ended = topics(*line.split())
    assert ended.code == 1
    assert told in ended.err
    assert len(ended.err.splitlines()) == 1
