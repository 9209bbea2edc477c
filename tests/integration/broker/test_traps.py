"""Bugs of other implementations of Kafka's broker, and the tests that keep plog from having them.

Most traps are covered by the tests of their subject: `TEST_BY_TRAP` names one test for each, though
there may be more. Traps that had no test are tested below. Transactions are not covered yet.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from plogd.testing.broker_process import BrokerProcess
from tests.helpers.group.raw_group import RawConnection, RawMember
from tests.helpers.programs.confluent import (
    TIMEOUT_S,
    admin,
    admin_client,
    confluent_kafka,
    create_topic,
    produce,
    read,
)

kafka_admin_messages = pytest.importorskip("kafka.protocol.admin")

KafkaError = confluent_kafka.KafkaError
TESTS = Path(__file__).parents[2]

TEST_BY_TRAP = {
    "keyless produce on compacted topics accepted": (
        "test_traps.py::test_compacted_topic_refuses_messages_without_a_key"
    ),
    "offsets for times wrong": (
        "test_confluent_kafka.py::test_timestamp_lookup_finds_the_first_message_at_or_after_it"
    ),
    "CreatePartitions answers an empty array": (
        "test_traps.py::test_create_partitions_has_a_result_for_every_topic"
    ),
    "OffsetCommit metadata not returned": ("group_scenarios.py::test_commit_keeps_its_metadata"),
    "DescribeConfigs empty": (
        "test_confluent_admin.py::test_topic_settings_are_described_with_their_source"
    ),
    "extra rebalance on max.poll.interval.ms": (
        "test_confluent_groups.py::test_member_that_stops_polling_is_removed_once_and_rejoins_once"
    ),
    "wrong codes for a commit during a rebalance": (
        "test_traps.py::test_commit_during_a_rebalance_depends_on_its_phase"
    ),
    "CreateTopics with mixed valid and invalid topics": (
        "test_traps.py::test_valid_topics_are_created_despite_invalid_ones"
    ),
    "UNKNOWN_MEMBER_ID under three concurrent groups": (
        "test_confluent_groups.py::test_three_concurrent_groups_keep_their_members"
    ),
    "empty assignment bytes in SyncGroup": (
        "test_traps.py::test_member_without_an_assignment_gets_empty_bytes"
    ),
    "max.message.bytes not enforced": (
        "test_traps.py::test_max_message_bytes_of_a_topic_is_enforced"
    ),
    "a fetch in the middle of a batch dropped the batch": (
        "test_confluent_kafka.py::test_consumer_can_start_in_the_middle_of_a_batch"
    ),
    "panic on APPEND and SUBTRACT of settings": (
        "test_dynamic_configs.py::test_values_are_appended_to_and_subtracted_from_lists"
    ),
    "spurious offset 0 while a coordinator loads": (
        "test_committed_offsets_restart.py::test_commits_never_look_lost_while_the_broker_starts"
    ),
}


@pytest.mark.parametrize("trap", TEST_BY_TRAP)
def test_every_trap_has_a_test(trap: str) -> None:
    file, _, name = TEST_BY_TRAP[trap].partition("::")
    [path] = TESTS.rglob(file)
    tree = ast.parse(path.read_text())
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_compacted_topic_refuses_messages_without_a_key(broker: BrokerProcess, topic: str) -> None:
    server = broker.bootstrap_servers
    create_topic(server, topic, cleanup_policy="compact")
    [refused] = produce(server, topic, [{"value": b"no key"}])
    assert refused.code() == KafkaError.INVALID_RECORD
    # A batch is refused as a whole if any of its records lacks a key.
    mixed = [{"key": b"k", "value": b"v"}, {"value": b"no key"}]
    errors = produce(server, topic, mixed, {"linger.ms": 200})
    assert errors[1].code() == KafkaError.INVALID_RECORD
    assert errors[0] is not None
    assert produce(server, topic, [{"key": b"k", "value": b"v"}]) == [None]
    assert [(m.key(), m.value()) for m in read(server, topic)] == [(b"k", b"v")]


def test_create_partitions_has_a_result_for_every_topic(broker: BrokerProcess, topic: str) -> None:
    create_topic(broker.bootstrap_servers, topic, 2)
    kind = kafka_admin_messages.CreatePartitionsRequest.CreatePartitionsTopic
    wanted = {topic: 4, f"{topic}-unknown": 4}
    request = kafka_admin_messages.CreatePartitionsRequest(
        topics=[kind(name=name, count=count, assignments=None) for name, count in wanted.items()],
        timeout_ms=30_000,
        validate_only=False,
    )
    connection = RawConnection(broker.bootstrap_servers)
    response = connection.ask(request, 3)
    connection.close()
    codes = {result.name: result.error_code for result in response.results}
    assert codes == {topic: 0, f"{topic}-unknown": KafkaError.UNKNOWN_TOPIC_OR_PART}


def test_valid_topics_are_created_despite_invalid_ones(broker: BrokerProcess, topic: str) -> None:
    good, also_good = f"{topic}-good", f"{topic}-too"
    wanted = [
        admin.NewTopic(good, 2, replication_factor=1),
        admin.NewTopic("no/slash", 1, replication_factor=1),
        admin.NewTopic(f"{topic}-replicas", 1, replication_factor=9),
        admin.NewTopic(also_good, 1, replication_factor=1),
        admin.NewTopic(f"{topic}-config", 1, replication_factor=1, config={"retention.ms": "x"}),
    ]
    client = admin_client(broker.bootstrap_servers)
    outcomes = {name: f.exception(TIMEOUT_S) for name, f in client.create_topics(wanted).items()}
    codes = {name: error and error.args[0].code() for name, error in outcomes.items()}
    assert codes == {
        good: None,
        also_good: None,
        "no/slash": KafkaError.TOPIC_EXCEPTION,
        f"{topic}-replicas": KafkaError.INVALID_REPLICATION_FACTOR,
        f"{topic}-config": KafkaError.INVALID_CONFIG,
    }
    for name in good, also_good:
        assert produce(broker.bootstrap_servers, name, [{"value": b"x"}]) == [None]


def test_max_message_bytes_of_a_topic_is_enforced(broker: BrokerProcess, topic: str) -> None:
    server = broker.bootstrap_servers
    create_topic(server, topic, max_message_bytes=2000)
    [too_large] = produce(server, topic, [{"value": b"x" * 3000}])
    assert too_large.code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert produce(server, topic, [{"value": b"x" * 1000}]) == [None]
    assert [len(m.value()) for m in read(server, topic)] == [1000]


@pytest.fixture
def raw_members(broker: BrokerProcess, topic: str) -> Iterator[Any]:
    """A function that returns a new member of the group that is named like the topic."""
    members: list[RawMember] = []

    def member() -> RawMember:
        members.append(RawMember(broker.bootstrap_servers, topic))
        return members[-1]

    yield member
    for each in members:
        each.connection.close()


def test_commit_during_a_rebalance_depends_on_its_phase(
    broker: BrokerProcess, topic: str, raw_members: Any
) -> None:
    create_topic(broker.bootstrap_servers, topic)
    old, new = raw_members(), raw_members()
    old.send_join()
    assert old.joined().generation_id == 1
    # All members have joined, but the partitions are not assigned yet.
    assert old.commit(topic, 1) == KafkaError.REBALANCE_IN_PROGRESS
    assert old.sync({old.member_id: b"all"}).error_code == 0
    assert old.commit(topic, 2) == 0
    new.send_join()
    _until_rebalance(old)
    # Members may still commit their positions before they rejoin.
    assert old.commit(topic, 3) == 0
    assert old.commit(topic, 4, generation=0) == KafkaError.ILLEGAL_GENERATION
    old.send_join()
    assert old.joined().generation_id == new.joined().generation_id == 2
    assert new.commit(topic, 5) == KafkaError.REBALANCE_IN_PROGRESS
    assert old.commit(topic, 6, generation=1) == KafkaError.ILLEGAL_GENERATION
    old.send_sync({old.member_id: b"mine", new.member_id: b"yours"})
    assert new.sync().assignment == b"yours"
    assert old.connection.receive().assignment == b"mine"
    assert new.commit(topic, 7) == 0
    unknown_member = raw_members()
    unknown_member.member_id, unknown_member.generation = "unknown", 2
    assert unknown_member.commit(topic, 8) == KafkaError.UNKNOWN_MEMBER_ID
    # While a group has members, commits without a member id are refused.
    unknown_member.member_id, unknown_member.generation = "", -1
    assert unknown_member.commit(topic, 9) == KafkaError.UNKNOWN_MEMBER_ID


def _until_rebalance(member: RawMember) -> None:
    """Send heartbeats until the other member's JoinGroup, on another connection, takes effect."""
    codes = [member.heartbeat() for _ in range(3)]
    while codes[-1] == 0:
        codes.append(member.heartbeat())
    assert codes[-1] == KafkaError.REBALANCE_IN_PROGRESS


def test_member_without_an_assignment_gets_empty_bytes(
    broker: BrokerProcess, topic: str, raw_members: Any
) -> None:
    leader, other = raw_members(), raw_members()
    leader.send_join()
    leader.joined()
    assert leader.sync({leader.member_id: b""}).error_code == 0
    other.send_join()
    _until_rebalance(leader)
    leader.send_join()
    assert len(leader.joined().members) == 2
    other.joined()
    other.send_sync()
    response = leader.sync({leader.member_id: b"everything"})
    assert (response.error_code, bytes(response.assignment)) == (0, b"everything")
    # The leader assigned nothing to the other member, which is not an error.
    response = other.connection.receive()
    assert (response.error_code, bytes(response.assignment)) == (0, b"")
    assert other.heartbeat() == 0
