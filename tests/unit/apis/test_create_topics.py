"""CreateTopics: requests and responses as frames."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from plog.errors import ErrorCode
from plog.types import ZERO_UUID
from plog.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from plog.wire.messages.metadata import MetadataRequest
from tests.helpers.sim.sim_broker import SimBroker


def new(name: str, **fields: Any) -> CreatableTopic:
    values: dict[str, Any] = {"name": name, "num_partitions": 1, "replication_factor": 1}
    return CreatableTopic(**(values | fields))


def request(*topics: CreatableTopic, **fields: Any) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=list(topics), **fields)


def names(broker: SimBroker) -> list[str]:
    return [topic.name for topic in broker.ask(MetadataRequest(topics=None), 9).topics]


@pytest.mark.parametrize("version", range(2, 8))
def test_topic_is_created_in_every_version(version: int) -> None:
    broker = SimBroker().start()
    config = CreatableTopicConfig(name="retention.ms", value="5")
    [result] = broker.ask(request(new("t", num_partitions=2, configs=[config])), version).topics
    assert (result.name, result.error_code, result.error_message) == ("t", 0, None)
    assert (result.topic_id != ZERO_UUID) == (version >= 7)
    actual = (result.num_partitions, result.replication_factor)
    assert actual == ((2, 1) if version >= 5 else (-1, -1))
    if version >= 5:
        configs = {one.name: one for one in result.configs}
        assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("5", 1)
        assert configs["segment.bytes"].config_source == 5
        assert list(configs) == sorted(configs)
    assert names(broker) == ["t"]


def test_each_topic_of_a_request_returns_its_own_configs() -> None:
    broker = SimBroker().start()
    values = {"a": None, "b": "5", "c": "5", "d": "6", "e": None}
    topics = [
        new(name, configs=[CreatableTopicConfig(name="retention.ms", value=value)] if value else [])
        for name, value in values.items()
    ]
    results = broker.ask(request(*topics), 5).topics
    sources = {
        result.name: next(
            (one.value, one.config_source) for one in result.configs if one.name == "retention.ms"
        )
        for result in results
    }
    default = ("604800000", 5)
    assert sources == {"a": default, "b": ("5", 1), "c": ("5", 1), "d": ("6", 1), "e": default}


def test_response_waits_until_the_topic_can_be_used() -> None:
    broker = SimBroker().start()
    asked = broker.begin(request(new("t")), 5)
    assert not asked.is_done
    broker.settle()
    assert asked.response().topics[0].error_code == 0
    assert broker.produce("t", b"a").error_code == 0


def test_each_topic_has_its_own_outcome() -> None:
    broker = SimBroker().start()
    broker.ask(request(new("old")), 5)
    answer = broker.ask(
        request(
            new("good"),
            new("old"),
            new("a/b"),
            new("no-partitions", num_partitions=0),
            new("too-many-replicas", replication_factor=2),
            new("bad-config", configs=[CreatableTopicConfig(name="x", value="1")]),
            new("null-config", configs=[CreatableTopicConfig(name="retention.ms", value=None)]),
            new("__cluster_metadata"),
            new("also-good", num_partitions=-1, replication_factor=-1),
        ),
        5,
    )
    assert {one.name: one.error_code for one in answer.topics} == {
        "good": 0,
        "old": ErrorCode.TOPIC_ALREADY_EXISTS,
        "a/b": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "no-partitions": ErrorCode.INVALID_PARTITIONS,
        "too-many-replicas": ErrorCode.INVALID_REPLICATION_FACTOR,
        "bad-config": ErrorCode.INVALID_CONFIG,
        "null-config": ErrorCode.INVALID_CONFIG,
        "__cluster_metadata": ErrorCode.INVALID_REQUEST,
        "also-good": 0,
    }
    assert all(one.error_message for one in answer.topics if one.error_code)
    assert names(broker) == ["also-good", "good", "old"]


def test_topic_named_twice_is_not_created_and_answered_once() -> None:
    broker = SimBroker().start()
    answer = broker.ask(request(new("twice"), new("once"), new("twice")), 5)
    actual = [(one.name, one.error_code) for one in answer.topics]
    assert actual == [("once", 0), ("twice", ErrorCode.INVALID_REQUEST)]
    assert names(broker) == ["once"]


def test_second_of_two_colliding_names_is_refused() -> None:
    broker = SimBroker().start()
    answer = broker.ask(request(new("a.b"), new("a_b")), 5)
    assert [one.error_code for one in answer.topics] == [0, ErrorCode.INVALID_TOPIC_EXCEPTION]


class TestAssignments:
    """Topics with explicit replica assignments."""

    def assigned(self, *pairs: tuple[int, list[int]], **fields: Any) -> Any:
        broker = SimBroker().start()
        assignments = [
            CreatableReplicaAssignment(partition_index=number, broker_ids=brokers)
            for number, brokers in pairs
        ]
        topic = new("t", assignments=assignments, **fields)
        [result] = broker.ask(request(topic), 5).topics
        return result

    def test_assignments_determine_the_number_of_partitions(self) -> None:
        result = self.assigned((1, [1]), (0, [1]), num_partitions=-1, replication_factor=-1)
        assert (result.error_code, result.num_partitions) == (0, 2)

    def test_counts_together_with_assignments_are_refused(self) -> None:
        assert self.assigned((0, [1])).error_code == ErrorCode.INVALID_REQUEST

    def test_unknown_brokers_are_refused(self) -> None:
        result = self.assigned((0, [5]), num_partitions=-1, replication_factor=-1)
        assert result.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


class TestValidateOnly:
    """Requests that are only validated."""

    def test_valid_topic_is_not_created(self) -> None:
        broker = SimBroker(num_partitions=3).start()
        asked = broker.begin(request(new("t", num_partitions=-1), validate_only=True), 7)
        assert asked.is_done
        [result] = asked.response().topics
        actual = (result.error_code, result.num_partitions, result.topic_id)
        assert actual == (0, 3, ZERO_UUID)
        assert names(broker) == []

    def test_invalid_topic_is_refused(self) -> None:
        broker = SimBroker().start()
        answer = broker.ask(request(new("a/b"), validate_only=True), 7)
        assert answer.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_slow_creation_times_out_and_completes_later() -> None:
    broker = SimBroker().start()
    asked = broker.begin(request(new("t"), timeout_ms=100), 5)
    broker.ports.timers.advance(100)
    assert asked.response().topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    broker.settle()
    assert names(broker) == ["t"]


def test_topics_of_one_request_share_syncs() -> None:
    broker = SimBroker().start()
    rounds = next(iter(broker.broker.log_manager.sync_rounds))
    before = rounds.rounds
    answer = broker.ask(request(*(new(f"t{n}") for n in range(100))), 5)
    assert {one.error_code for one in answer.topics} == {0}
    assert rounds.rounds - before <= 20


def test_thousand_partitions_are_created() -> None:
    broker = SimBroker().start()
    [result] = broker.ask(request(new("t", num_partitions=1000)), 5).topics
    assert result.num_partitions == 1000
    assert broker.produce("t", b"a", partition=999).error_code == 0
    again = broker.restart()
    assert again.fetch("t", partition=999).high_watermark == 1


def test_topic_is_removed_when_disk_has_no_space_for_logs() -> None:
    broker = SimBroker().start()
    broker.files.fail_when(lambda op: op.name == "mkdir" and "full" in op.path, errno.ENOSPC)
    [result] = broker.ask(request(new("full")), 5).topics
    assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert names(broker) == []
    broker.files.fail_no_more()
    assert broker.ask(request(new("full")), 5).topics[0].error_code == 0
    again = broker.restart()
    assert names(again) == ["full"]
    assert again.produce("full", b"a").error_code == 0


def test_created_topic_survives_power_loss() -> None:
    broker = SimBroker().start()
    broker.ask(request(new("t", num_partitions=3)), 5)
    again = broker.restart(broker.files.crash(broker.ports.random))
    assert names(again) == ["t"]
    assert again.produce("t", b"a", partition=2).error_code == 0


@pytest.mark.parametrize("validate_only", [False, True])
def test_request_creates_at_most_ten_thousand_partitions(validate_only: bool) -> None:
    broker = SimBroker(num_partitions=3).start()
    asked = [new("a", num_partitions=5_000), new("b", num_partitions=4_998), new("c")]
    by_hand = [CreatableReplicaAssignment(partition_index=0, broker_ids=[1])]
    counts: list[dict[str, Any]] = [
        {"num_partitions": -1},
        {"num_partitions": -1, "replication_factor": -1, "assignments": by_hand * 2},
    ]
    for count in counts:
        too_many = request(*asked, new("d", **count), validate_only=validate_only)
        answer = broker.ask(too_many, 7)
        assert {one.error_code for one in answer.topics} == {ErrorCode.POLICY_VIOLATION}
    assert names(broker) == []
    fitting = request(*asked, new("d", num_partitions=-7), validate_only=True)
    codes = [one.error_code for one in broker.ask(fitting, 7).topics]
    assert codes == [0, 0, 0, ErrorCode.INVALID_PARTITIONS]
