"""Exactly one option chooses the topics of a query."""

from __future__ import annotations

import pytest

from plog.spark.options.option_values import OptionReader
from plog.spark.options.topic_choice import TopicChoice, read_topic_choice
from plog.types import TopicPartition


def choice(**options: str) -> TopicChoice:
    reader = OptionReader(options)
    made = read_topic_choice(reader)
    assert reader.problems == []
    return made


def problem(**options: str) -> str:
    reader = OptionReader(options)
    read_topic_choice(reader)
    [found] = reader.problems
    return found


def test_subscribe_names_topics() -> None:
    assert choice(subscribe=" b, a,,b ") == TopicChoice(topics=("a", "b"))


def test_pattern_is_compiled() -> None:
    pattern = choice(subscribepattern="page-.*").pattern
    assert pattern is not None
    assert pattern.fullmatch("page-views")


def test_assign_names_partitions() -> None:
    assert choice(assign='{"t":[2,0]}').partitions == (
        TopicPartition("t", 0),
        TopicPartition("t", 2),
    )


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "no topic is set; set exactly one of assign, subscribe, subscribePattern"),
        (
            {"assign": '{"t":[0]}', "subscribe": "t"},
            "assign and subscribe are set; set exactly one of assign, subscribe, subscribePattern",
        ),
        (
            {"subscribe": " , "},
            "subscribe= , : does not contain any topics; separate the names with commas",
        ),
        ({"subscribepattern": " "}, "subscribePattern= : is empty; set a regular expression"),
        (
            {"assign": "{}"},
            'assign={}: does not contain any partitions; use the format {"page-views":[0,1]}',
        ),
    ],
)
def test_invalid_choice_is_refused(options: dict[str, str], text: str) -> None:
    assert problem(**options) == text


def test_invalid_pattern_is_refused() -> None:
    assert "not a regular expression of Python" in problem(subscribepattern="a(")
