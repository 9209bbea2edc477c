"""OptionReader parses values as Spark does and collects all problems."""

from __future__ import annotations

import pytest

from plog.spark.options.option_values import (
    OptionReader,
    parse_boolean,
    parse_duration_ms,
    parse_integer,
)


def test_names_are_found_in_any_case() -> None:
    reader = OptionReader({"minpartitions": "3", "FailOnDataLoss": "FALSE"})
    assert reader.integer("minPartitions") == 3
    assert reader.boolean("failOnDataLoss", True) is False
    assert reader.problems == []


def test_missing_options_have_defaults() -> None:
    reader = OptionReader({})
    assert reader.integer("minPartitions") is None
    assert reader.boolean("failOnDataLoss", True) is True
    assert reader.text("subscribe") is None


def test_every_problem_is_collected() -> None:
    reader = OptionReader({"a": "x", "b": "0", "c": "yes"})
    assert reader.integer("a") is None
    assert reader.integer("b") is None
    assert reader.boolean("c", True) is True
    assert reader.problems == [
        "a=x: not an integer",
        "b=0: must be 1 to 9223372036854775807",
        "c=yes: use true or false",
    ]


@pytest.mark.parametrize("text", ["", " 1", "1_000", "1.0", "٣", "9" * 5000, "9223372036854775808"])
def test_invalid_integer_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_integer(text, at_least=0)


@pytest.mark.parametrize("text", ["", "1", "yes", "true "])
def test_invalid_boolean_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="use true or false"):
        parse_boolean(text)


def test_durations_have_units_of_spark() -> None:
    texts = ["5", "5ms", "5s", "5m", "5 min", " 5H ", "5d"]
    assert [parse_duration_ms(text) for text in texts] == [
        5,
        5,
        5_000,
        300_000,
        300_000,
        18_000_000,
        432_000_000,
    ]


@pytest.mark.parametrize("text", ["", "m", "-5s", "5 weeks", "1.5h", "5" * 5000])
def test_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration_ms(text)
