"""CreatePartitions: requests and responses as frames."""

from __future__ import annotations

import errno
import random
from typing import Any

import pytest

from plog.errors import ErrorCode
from plog.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from plog.wire.messages.delete_topics import DeleteTopicsRequest
from plog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.helpers.sim.sim_broker import SimBroker, create_topic, produce_request
from tests.helpers.sim.sim_files import SimCrash


def make(*names: str, **settings: Any) -> SimBroker:
    broker = SimBroker(auto_create_topics_enable=False, **settings).start()
    for name in names or ("t",):
        create_topic(broker, name, 2)
    return broker


def topic(
    name: str, count: int, assignments: list[list[int]] | None = None
) -> CreatePartitionsTopic:
    by_hand = [CreatePartitionsAssignment(broker_ids=one) for one in assignments or ()]
    return CreatePartitionsTopic(
        name=name, count=count, assignments=None if assignments is None else by_hand
    )


def request(
    *topics: CreatePartitionsTopic, validate_only: bool = False, timeout_ms: int = 1000
) -> CreatePartitionsRequest:
    return CreatePartitionsRequest(
        topics=list(topics), validate_only=validate_only, timeout_ms=timeout_ms
    )


def codes(answer: Any) -> dict[str, int]:
    assert all((one.error_message is None) == (not one.error_code) for one in answer.results)
    found = [(one.name, one.error_code) for one in answer.results]
    assert len(dict(found)) == len(found), "a topic is in the answer twice"
    return dict(found)


def count(broker: SimBroker, name: str = "t") -> int:
    """Return the number of partitions in the metadata; each of them has a leader."""
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
    partitions = broker.ask(asked, 9).topics[0].partitions
    assert [(one.partition_index, one.leader_id) for one in partitions] == [
        (number, 1) for number in range(len(partitions))
    ]
    return len(partitions)


@pytest.mark.parametrize("version", range(4))
def test_new_partitions_can_be_used_after_the_response(version: int) -> None:
    broker = make()
    assert codes(broker.ask(request(topic("t", 4)), version)) == {"t": 0}
    assert count(broker) == 4
    for number in range(4):
        assert broker.produce("t", b"a", partition=number).base_offset == 0
        assert broker.fetch("t", partition=number).high_watermark == 1


def test_existing_partitions_are_not_affected() -> None:
    broker = make()
    broker.produce("t", b"old")
    waiting = broker.begin(produce_request("t", b"in progress"), 9)  # Waits for the disk.
    partition = broker.broker.replica_manager.partition("t", 0)
    assert codes(broker.ask(request(topic("t", 3)), 3)) == {"t": 0}
    assert waiting.response().responses[0].partition_responses[0].base_offset == 1
    assert broker.broker.replica_manager.partition("t", 0) is partition
    assert broker.produce("t", b"new").base_offset == 2
    assert broker.fetch("t").high_watermark == 3


def test_each_topic_is_answered_once_with_its_own_outcome() -> None:
    """Other brokers' empty responses to such a request have misled clients."""
    broker = make("a", "b", "c", "d")
    answer = broker.ask(
        request(
            topic("a", 3),
            topic("nobody", 3),
            topic("b", 2),
            topic("c", 3),
            topic("c", 4),
            topic("d", 3, [[1]]),
            topic("__cluster_metadata", 2),
        ),
        3,
    )
    assert codes(answer) == {
        "a": 0,
        "nobody": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "b": ErrorCode.INVALID_PARTITIONS,
        "d": 0,
        "__cluster_metadata": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "c": ErrorCode.INVALID_REQUEST,
    }
    assert [count(broker, name) for name in "abcd"] == [3, 2, 2, 3]


@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (topic("t", 1), ErrorCode.INVALID_PARTITIONS),
        (topic("t", 2), ErrorCode.INVALID_PARTITIONS),
        (topic("t", -1), ErrorCode.INVALID_PARTITIONS),
        (topic("t", 2**31 - 1), ErrorCode.POLICY_VIOLATION),
        (topic("t", 4, [[1]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", 3, []), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", 3, [[2]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", 3, [[1, 1]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_invalid_request_changes_nothing(
    asked: CreatePartitionsTopic, code: int, validate_only: bool
) -> None:
    broker = make()
    answer = broker.ask(request(asked, validate_only=validate_only), 3)
    assert codes(answer) == {"t": code}
    assert count(broker) == 2


def test_validate_only_changes_nothing() -> None:
    broker = make()
    before = broker.files.operations
    assert codes(broker.ask(request(topic("t", 9), validate_only=True), 3)) == {"t": 0}
    assert (count(broker), broker.files.operations) == (2, before)


def test_new_partitions_have_settings_of_the_topic() -> None:
    broker = SimBroker().start()
    create_topic(broker, "t", 1, retention_ms="1234")
    broker.ask(request(topic("t", 2)), 3)
    assert broker.log("t", 1).config.retention_ms == 1234
    assert broker.log("t", 1).topic_id == broker.log("t", 0).topic_id


def test_new_partitions_survive_power_loss() -> None:
    broker = make()
    broker.ask(request(topic("t", 3)), 3)
    broker.produce("t", b"a", partition=2)
    again = broker.restart(broker.files.crash(broker.ports.random))
    assert count(again) == 3
    assert again.fetch("t", partition=2).high_watermark == 1
    assert codes(again.ask(request(topic("t", 4)), 3)) == {"t": 0}
    assert count(again.restart()) == 4


def test_new_partitions_are_deleted_with_the_topic() -> None:
    broker = make()
    broker.ask(request(topic("t", 3)), 3)
    broker.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
    broker.ports.advance(70_000)
    assert [name for name in broker.files.listdir("/data") if name.startswith("t-")] == []
    create_topic(broker, "t", 1)
    assert count(broker) == 1


def test_slow_creation_times_out_and_completes_later() -> None:
    broker = make()
    asked = broker.begin(request(topic("t", 3), timeout_ms=100), 3)
    broker.ports.timers.advance(100)
    assert codes(asked.response()) == {"t": ErrorCode.REQUEST_TIMED_OUT}
    broker.settle()
    assert count(broker) == 3


def test_topic_is_unchanged_when_disk_has_no_space_for_logs() -> None:
    broker = make()
    broker.files.fail_when(lambda operation: "t-3" in operation.path, errno.ENOSPC)
    answer = broker.ask(request(topic("t", 4)), 3)
    assert codes(answer) == {"t": ErrorCode.KAFKA_STORAGE_ERROR}
    assert count(broker) == 2
    assert broker.log("t", 2) is None
    broker.files.fail_no_more()
    assert codes(broker.ask(request(topic("t", 4)), 3)) == {"t": 0}
    assert count(broker.restart()) == 4


def test_topic_is_unchanged_when_disk_has_no_space_for_records() -> None:
    broker = make()

    def is_metadata(operation: Any) -> bool:
        return operation.name == "append" and "__cluster_metadata" in operation.path

    broker.files.fail_when(is_metadata, errno.ENOSPC)
    answer = broker.ask(request(topic("t", 3)), 3)
    assert codes(answer) == {"t": ErrorCode.KAFKA_STORAGE_ERROR}
    broker.files.fail_no_more()
    assert (count(broker), broker.log("t", 2)) == (2, None)
    assert codes(broker.ask(request(topic("t", 3)), 3)) == {"t": 0}
    assert broker.produce("t", b"a", partition=2).error_code == 0


def test_crash_at_any_file_operation_leaves_all_or_no_partitions() -> None:
    """All new partitions exist or none, existing ones can be used, and a retry succeeds."""
    whole = make()
    whole.produce("t", b"old")
    before = whole.files.operations
    whole.ask(request(topic("t", 4)), 3)
    for number in range(before + 1, whole.files.operations + 2):
        broker = make()
        broker.produce("t", b"old")
        broker.files.crash_at(number)
        asked = None
        try:
            asked = broker.begin(request(topic("t", 4)), 3)
            broker.settle()
        except SimCrash:
            pass
        is_answered = asked is not None and asked.is_done and codes(asked.response()) == {"t": 0}
        for seed in range(3):
            again = broker.restart(broker.files.crash(random.Random(seed)))
            found = count(again)
            assert found in ({4} if is_answered else {2, 4})
            assert again.fetch("t").high_watermark == 1
            if found == 2:
                assert codes(again.ask(request(topic("t", 4)), 3)) == {"t": 0}
            for partition in (1, 2, 3):
                assert again.produce("t", b"a", partition=partition).base_offset == 0
            again.stop()
    assert is_answered, "the last crash point is not after the response"
