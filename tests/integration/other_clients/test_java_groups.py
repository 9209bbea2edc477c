"""Groups as Kafka's own tools show them: two active members, described by ConsumerGroupCommand.

The members are VerifiableConsumers, each in its own JVM; all tests of the live group share them.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from plogd.testing.broker_process import BrokerProcess
from tests.helpers.programs.confluent import create_topic, produce
from tests.helpers.programs.kafka_tools import KafkaTools, offsets, table
from tests.helpers.programs.verifiable import QUICK_MEMBER, VerifiableMember

PARTITIONS = 4
RECORDS = 10
COMMAND = "ConsumerGroupCommand"


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveGroup:
    """Two members with two partitions each, which have read and committed all records."""

    name: str
    topic: str
    members: list[VerifiableMember]


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the client settings of the members."""
    path = tmp_path_factory.mktemp("member") / "member.properties"
    path.write_text(QUICK_MEMBER)
    return path


@pytest.fixture(scope="module")
def run(kafka_tools: KafkaTools, broker: BrokerProcess) -> Callable[..., str]:
    """Run ConsumerGroupCommand, or the tool named by `tool`, and return its output."""

    def run_tool(*arguments: str, tool: str = COMMAND) -> str:
        server = ("--bootstrap-server", broker.bootstrap_servers)
        # The tool exits with 0 even if it fails.
        return kafka_tools.attempt(tool, *server, *arguments).text

    return run_tool


@pytest.fixture(scope="module")
def live(kafka_tools: KafkaTools, broker: BrokerProcess, config: Path) -> Iterator[LiveGroup]:
    name = f"java-groups-{uuid.uuid4().hex[:8]}"
    fill(broker, name)
    with ExitStack() as stack:
        members = []
        for _ in range(2):
            member = VerifiableMember.start(
                kafka_tools, broker.bootstrap_servers, config, name, name
            )
            stack.enter_context(member.process)
            members.append(member)
            if member is members[0]:
                member.wait_until_committed(dict.fromkeys(range(PARTITIONS), RECORDS))
        for member in members:
            member.wait_until_it_has(PARTITIONS // 2)
        yield LiveGroup(name=name, topic=name, members=members)


def fill(broker: BrokerProcess, topic: str) -> None:
    create_topic(broker.bootstrap_servers, topic, PARTITIONS)
    messages = [
        {"value": b"%d" % i, "partition": partition}
        for partition in range(PARTITIONS)
        for i in range(RECORDS)
    ]
    assert set(produce(broker.bootstrap_servers, topic, messages)) == {None}


def test_two_members_share_the_partitions_and_read_them_all(live: LiveGroup) -> None:
    one, other = (member.partitions() for member in live.members)
    assert one | other == set(range(PARTITIONS))
    assert not one & other


def test_offsets_are_described_with_their_members(live: LiveGroup, run: Callable[..., str]) -> None:
    rows = table(run("--describe", "--group", live.name, "--offsets", "--verbose"))
    seen = {
        (row["TOPIC"], int(row["PARTITION"]), row["CURRENT-OFFSET"], row["LOG-END-OFFSET"])
        for row in rows
    }
    end = str(RECORDS)
    assert seen == {(live.topic, partition, end, end) for partition in range(PARTITIONS)}
    assert {row["LAG"] for row in rows} == {"0"}
    by_member = {
        frozenset(int(row["PARTITION"]) for row in rows if row["CONSUMER-ID"] == member)
        for member in {row["CONSUMER-ID"] for row in rows}
    }
    assert by_member == {frozenset(member.partitions()) for member in live.members}


def test_members_are_described_with_their_assignment(
    live: LiveGroup, run: Callable[..., str]
) -> None:
    rows = table(run("--describe", "--group", live.name, "--members", "--verbose"))
    assert [row["#PARTITIONS"] for row in rows] == ["2", "2"]
    assert all(row["CONSUMER-ID"].startswith(row["CLIENT-ID"] + "-") for row in rows)
    assert {row["HOST"] for row in rows} == {"/127.0.0.1"}
    expected = {
        f"{live.topic}:{','.join(map(str, sorted(member.partitions())))}" for member in live.members
    }
    assert {row["CURRENT-ASSIGNMENT"] for row in rows} == expected


def test_state_is_described_and_listed(
    live: LiveGroup, broker: BrokerProcess, run: Callable[..., str]
) -> None:
    [state] = table(run("--describe", "--group", live.name, "--state"))
    assert state["STATE"] == "Stable"
    assert state["#MEMBERS"] == "2"
    assert state["ASSIGNMENT-STRATEGY"] == "range"
    assert state["COORDINATOR"] == broker.bootstrap_servers

    assert live.name in run("--list").split()
    of_state = {row["GROUP"]: row["STATE"] for row in table(run("--list", "--state", "stable"))}
    assert of_state[live.name] == "Stable"
    of_type = {row["GROUP"]: row["TYPE"] for row in table(run("--list", "--type", "classic"))}
    assert of_type[live.name] == "Classic"
    assert live.name not in run("--list", "--state", "empty").split()
    assert live.name not in run("--list", "--type", "share").split()
    listed = run("--list", tool="GroupsCommand")
    assert [live.name, "Classic", "consumer"] in [line.split() for line in listed.splitlines()]


def test_active_group_is_neither_reset_nor_deleted(
    live: LiveGroup, run: Callable[..., str]
) -> None:
    topic = ("--group", live.name, "--topic", live.topic)
    reset = run("--reset-offsets", *topic, "--to-earliest", "--execute")
    assert "can only be reset if the group" in reset
    assert "current state is Stable" in reset
    assert "GroupNotEmptyException" in run("--delete", "--group", live.name)
    assert run("--delete-offsets", *topic).count("GroupSubscribedToTopicException") == PARTITIONS
    rows = table(run("--describe", "--group", live.name))
    assert [row["CURRENT-OFFSET"] for row in rows] == [str(RECORDS)] * PARTITIONS


def test_records_produced_later_reach_the_members(
    live: LiveGroup, kafka_tools: KafkaTools, broker: BrokerProcess
) -> None:
    with kafka_tools.start(
        "VerifiableProducer", "--bootstrap-server", broker.bootstrap_servers,
        "--topic", live.topic, "--max-messages", "400", "--value-prefix", "7",
        "--repeating-keys", "40",
    ) as producer:  # fmt: skip
        assert producer.wait() == 0
    assert '"sent":400,"acked":400' in producer.lines[-1]
    assert sum('"name":"producer_send_success"' in line for line in producer.lines) == 400
    ends = offsets(kafka_tools.against(broker.bootstrap_servers), live.topic)
    assert sum(ends.values()) == PARTITIONS * RECORDS + 400
    for member in live.members:
        member.wait_until_committed(
            {partition: ends[partition] for partition in member.partitions()}
        )


def test_partitions_of_a_leaving_member_are_reassigned(
    live: LiveGroup, run: Callable[..., str]
) -> None:
    live.members[1].process.stop()
    assert '"shutdown_complete"' in live.members[1].process.lines[-1]
    assert live.members[0].wait_until_it_has(PARTITIONS) == set(range(PARTITIONS))
    [state] = table(run("--describe", "--group", live.name, "--state"))
    assert state["#MEMBERS"] == "1"


def test_added_partitions_are_consumed(live: LiveGroup, run: Callable[..., str]) -> None:
    run("--alter", "--topic", live.topic, "--partitions", "6", tool="TopicCommand")
    assert live.members[0].wait_until_it_has(6) == set(range(6))


def test_static_member_keeps_its_partitions_and_a_killed_one_loses_them(
    kafka_tools: KafkaTools,
    broker: BrokerProcess,
    config: Path,
    topic: str,
    run: Callable[..., str],
) -> None:
    """KIP-345: a member that returns with its instance id keeps its partitions; no rebalance."""
    fill(broker, topic)

    def start(name: str, session_timeout_ms: int = 45_000) -> VerifiableMember:
        return VerifiableMember.start(
            kafka_tools, broker.bootstrap_servers, config, topic, topic,
            "--group-instance-id", name, "--session-timeout", str(session_timeout_ms),
        )  # fmt: skip

    with ExitStack() as stack:
        one, other = start("one"), start("other")
        for member in (one, other):
            stack.enter_context(member.process)
            member.wait_until_it_has(2)
        had = other.partitions()
        events = len(one.process.lines)
        other.process.kill()
        again = start("other", session_timeout_ms=6000)
        stack.enter_context(again.process)
        assert again.wait_until_it_has(2) == had
        assert not [x for x in one.process.lines[events:] if "partitions_" in x]
        rows = table(run("--describe", "--group", topic, "--members"))
        assert sorted(row["GROUP-INSTANCE-ID"] for row in rows) == ["one", "other"]

        again.process.kill()
        assert one.wait_until_it_has(PARTITIONS) == set(range(PARTITIONS))


def test_console_consumer_resumes_at_its_groups_offsets(
    kafka_tools: KafkaTools, broker: BrokerProcess, topic: str
) -> None:
    create_topic(broker.bootstrap_servers, topic)
    produce(broker.bootstrap_servers, topic, [{"value": b"%d" % i} for i in range(10)])
    reader = (
        "ConsoleConsumer", "--bootstrap-server", broker.bootstrap_servers, "--topic", topic,
        "--group", topic,
    )  # fmt: skip
    first = kafka_tools.run(*reader, "--from-beginning", "--max-messages", "4")
    assert first.split() == ["0", "1", "2", "3"]
    assert kafka_tools.run(*reader, "--max-messages", "3").split() == ["4", "5", "6"]
