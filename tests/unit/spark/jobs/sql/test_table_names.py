"""Tables of a query are topics, or an error names the nearest one."""

from __future__ import annotations

import pytest

from plog.settings import ConfigError
from plog.spark.jobs.sql.table_names import check_case, name_parts, topic_of

TOPICS = ["clicks", "my.topic", "a`b"]


def test_table_is_the_topic_with_its_name() -> None:
    assert topic_of("`clicks`", TOPICS) == "clicks"
    assert topic_of("`my.topic`", TOPICS) == "my.topic"
    assert topic_of("`a``b`", TOPICS) == "a`b"


@pytest.mark.parametrize(
    ("relation", "message"),
    [
        ("`click`", "cannot find the table click: there is no such topic; did you mean clicks?"),
        ("`my`.`topic`", "write `my.topic` in backticks"),
        ("`x`", "plog topics --list shows all topics"),
    ],
)
def test_other_table_is_an_error(relation: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        topic_of(relation, TOPICS)


def test_topics_that_differ_in_case_cannot_be_told_apart() -> None:
    check_case("clicks", "select * from clicks", ["clicks", "Clicks"])
    with pytest.raises(ConfigError, match="cannot read clicks and Clicks in one query"):
        check_case("clicks", "select * from clicks, Clicks", ["clicks", "Clicks"])


def test_parts_of_a_name_can_contain_anything() -> None:
    assert name_parts("`a.b`.`c``.d`") == ["a.b", "c`.d"]
