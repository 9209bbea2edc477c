"""Results of operations on many items."""

from __future__ import annotations

import pytest

from plog.client.admin.results import Results, log_notes, outcome, raise_if_error
from plog.errors import ErrorCode, TopicAlreadyExists, UnknownTopicOrPartition


@pytest.fixture
def results() -> Results[str, int]:
    return Results({"b": 2, "a": TopicAlreadyExists("a exists"), "c": UnknownTopicOrPartition()})


def test_results_keep_the_order_of_the_request(results: Results[str, int]) -> None:
    assert list(results) == ["b", "a", "c"]
    assert len(results) == 3
    assert results["b"] == 2
    assert isinstance(results["a"], TopicAlreadyExists)


def test_get_raises_only_the_error_of_its_key(results: Results[str, int]) -> None:
    assert results.get("b") == 2
    with pytest.raises(TopicAlreadyExists, match="a exists"):
        results.get("a")
    with pytest.raises(KeyError):
        results.get("not requested")


def test_raise_first_raises_the_first_error(results: Results[str, int]) -> None:
    with pytest.raises(TopicAlreadyExists):
        results.raise_first()
    assert Results({"b": 2}).raise_first() == {"b": 2}


def test_values_and_errors_are_separate(results: Results[str, int]) -> None:
    assert results.values_by_key == {"b": 2}
    assert list(results.errors) == ["a", "c"]


def test_outcome_has_the_message_of_the_broker_or_a_default() -> None:
    error = outcome(ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'a' already exists.", "topic a", None)
    assert str(error) == "Topic 'a' already exists."
    silent = outcome(ErrorCode.TOPIC_ALREADY_EXISTS, None, "topic a", None)
    assert str(silent) == "topic a: A topic with this name already exists."


def test_error_of_the_whole_request_is_raised() -> None:
    raise_if_error(0, None, "nothing")
    with pytest.raises(UnknownTopicOrPartition, match="topic a"):
        raise_if_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None, "topic a")


def test_broker_notes_are_logged_once_and_errors_are_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log_notes("ACLs", [(0, "stored"), (0, "stored"), (0, None), (0, ""), (42, "wrong")])
    assert caplog.messages == ["ACLs: stored"]
