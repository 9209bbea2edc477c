"""Columns to write have the names and types of Spark's Kafka connector."""

from __future__ import annotations

import pytest

from plog.client.settings import ConfigError
from plog.spark.sink.row_columns import check_row_columns

ALL = {
    "topic": "string",
    "partition": "int",
    "key": "binary",
    "value": "string",
    "headers": "array<struct<key:string,value:binary>>",
}


def test_all_columns_are_accepted() -> None:
    check_row_columns(ALL.items(), topic=None)


def test_value_alone_is_accepted_if_the_topic_is_an_option() -> None:
    check_row_columns([("value", "binary"), ("other", "double")], topic="t")


@pytest.mark.parametrize("name", ["topic", "value"])
def test_missing_column_is_refused(name: str) -> None:
    columns = {key: ALL[key] for key in ALL if key != name}
    with pytest.raises(ConfigError, match=name):
        check_row_columns(columns.items(), topic=None)


@pytest.mark.parametrize("name", ALL)
def test_wrong_type_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"the column {name} has the type bigint"):
        check_row_columns((ALL | {name: "bigint"}).items(), topic="t")


def test_every_problem_is_reported() -> None:
    with pytest.raises(ConfigError) as caught:
        check_row_columns([("key", "int")], topic=None)
    assert len(caught.value.problems) == 3
