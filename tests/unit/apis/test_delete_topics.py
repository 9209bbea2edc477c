"""DeleteTopics: requests and responses as frames."""

from __future__ import annotations

from typing import Any

import pytest

from plog.errors import ErrorCode
from plog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from plog.wire.messages.metadata import MetadataRequest
from plogd.apis.sliced_requests import MAX_CHANGES
from tests.helpers.sim.sim_broker import SimBroker, create_topic


def make(*names: str, **settings: Any) -> SimBroker:
    broker = SimBroker(auto_create_topics_enable=False, **settings).start()
    for name in names or ("t",):
        create_topic(broker, name)
    return broker


def by_name(*names: str, version: int = 5, timeout_ms: int = 1000) -> DeleteTopicsRequest:
    if version >= 6:
        topics = [DeleteTopicState(name=name) for name in names]
        return DeleteTopicsRequest(topics=topics, timeout_ms=timeout_ms)
    return DeleteTopicsRequest(topic_names=list(names), timeout_ms=timeout_ms)


def id_of(broker: SimBroker, name: str = "t") -> bytes:
    state = broker.broker.cache.topic(name)
    assert state is not None
    return state.topic_id


def names(broker: SimBroker) -> list[str]:
    return [topic.name for topic in broker.ask(MetadataRequest(topics=None), 9).topics]


@pytest.mark.parametrize("version", range(1, 7))
def test_topic_is_deleted_by_name_in_every_version(version: int) -> None:
    broker = make("t", "u")
    topic_id = id_of(broker)
    [result] = broker.ask(by_name("t", version=version), version).responses
    assert (result.name, result.error_code, result.error_message) == ("t", 0, None)
    assert result.topic_id == (topic_id if version >= 6 else bytes(16))
    assert names(broker) == ["u"]


def test_topic_is_deleted_by_id() -> None:
    broker = make()
    request = DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=id_of(broker))], timeout_ms=99)
    [result] = broker.ask(request, 6).responses
    assert (result.name, result.error_code) == ("t", 0)
    assert names(broker) == []


def test_directories_are_renamed_and_files_deleted_later() -> None:
    broker = make()
    broker.produce("t", b"a")
    broker.ask(by_name("t"), 5)
    left = [name for name in broker.files.listdir("/data") if name.startswith("t-")]
    assert [name.endswith("-delete") for name in left] == [True]
    broker.ports.advance(70_000)
    assert [name for name in broker.files.listdir("/data") if name.startswith("t-")] == []


def test_new_topic_with_same_name_is_empty() -> None:
    broker = make()
    broker.produce("t", b"old")
    old_id = id_of(broker)
    broker.ask(by_name("t"), 5)
    create_topic(broker, "t")
    assert id_of(broker) != old_id
    assert broker.fetch("t").high_watermark == 0
    assert broker.produce("t", b"new").base_offset == 0


def test_each_topic_has_its_own_outcome() -> None:
    broker = make("a", "b", "c")
    answer = broker.ask(by_name("a", "nobody", "b", "b", "__cluster_metadata"), 5)
    assert {one.name: one.error_code for one in answer.responses} == {
        "a": 0,
        "nobody": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "b": ErrorCode.INVALID_REQUEST,
        "__cluster_metadata": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert all(one.error_message for one in answer.responses if one.error_code)
    assert names(broker) == ["b", "c"]


def test_invalid_names_and_ids_are_refused() -> None:
    broker = make()
    topic_id = id_of(broker)
    states = [
        DeleteTopicState(),
        DeleteTopicState(name="t", topic_id=topic_id),
        DeleteTopicState(topic_id=b"?" * 16),
        DeleteTopicState(topic_id=b"2" * 16),
        DeleteTopicState(topic_id=b"2" * 16),
    ]
    answer = broker.ask(DeleteTopicsRequest(topics=states, timeout_ms=1000), 6)
    actual = [(one.name, one.topic_id[:1], one.error_code) for one in answer.responses]
    assert actual == [
        (None, b"\0", ErrorCode.INVALID_REQUEST),
        ("t", topic_id[:1], ErrorCode.INVALID_REQUEST),
        (None, b"?", ErrorCode.UNKNOWN_TOPIC_ID),
        (None, b"2", ErrorCode.INVALID_REQUEST),
    ]
    assert names(broker) == ["t"]


def test_topic_named_by_name_and_by_id_is_not_deleted() -> None:
    broker = make()
    states = [DeleteTopicState(name="t"), DeleteTopicState(topic_id=id_of(broker))]
    answer = broker.ask(DeleteTopicsRequest(topics=states, timeout_ms=1000), 6)
    assert {one.error_code for one in answer.responses} == {ErrorCode.INVALID_REQUEST}
    assert names(broker) == ["t"]


@pytest.mark.parametrize(
    ("version", "code"), [(2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)]
)
def test_topics_are_kept_when_deletion_is_disabled(version: int, code: int) -> None:
    broker = make(delete_topic_enable=False)
    [result] = broker.ask(by_name("t", version=version), version).responses
    assert (result.name, result.error_code) == ("t", code)
    assert names(broker) == ["t"]


def test_slow_deletion_times_out_and_completes_later() -> None:
    broker = make()
    asked = broker.begin(by_name("t", timeout_ms=100), 5)
    broker.ports.timers.advance(100)
    assert asked.response().responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    broker.settle()
    assert names(broker) == []


def test_deleted_topic_does_not_return_after_power_loss() -> None:
    broker = make()
    broker.produce("t", b"a")
    broker.ask(by_name("t"), 5)
    again = broker.restart(broker.files.crash(broker.ports.random))
    assert names(again) == []
    assert not again.files.exists("/data/t-0")


def test_internal_topics_can_be_deleted() -> None:
    broker = make("__consumer_offsets")
    [result] = broker.ask(by_name("__consumer_offsets"), 5).responses
    assert result.error_code == 0


def test_refused_request_is_answered_once_for_a_name_that_is_repeated() -> None:
    broker = SimBroker().start()
    request = DeleteTopicsRequest(topic_names=["same"] * (MAX_CHANGES + 1))
    [result] = broker.ask(request, 5).responses
    assert (result.name, result.error_code) == ("same", ErrorCode.POLICY_VIOLATION)
