"""plog/spark/values/value_columns.py: the checks of the arguments of decode."""

from __future__ import annotations

import pytest

from plog.settings import ConfigError
from plog.spark.values.value_columns import check_names, check_request

COLUMNS = ("key", "value", "timestamp")


def test_valid_request_is_accepted() -> None:
    check_request("json", "value", COLUMNS, {"dateFormat": "yyyy"})
    check_request("avro", "key", COLUMNS, {})


@pytest.mark.parametrize(
    ("value_format", "column", "options", "message"),
    [
        ("jsn", "value", {}, "did you mean json"),
        ("parquet", "value", {}, "use one of json, csv, text, avro"),
        ("json", "body", {}, "cannot decode the column body: the rows have only key, value"),
        ("text", "value", {"sep": ";"}, "the format text has no options; remove sep"),
        ("csv", "value", {"MODE": "FAILFAST"}, "the option mode cannot be set"),
        ("json", "value", {"columnNameOfCorruptRecord": "c"}, "cannot be set: it is fixed"),
    ],
)
def test_wrong_request_is_refused(
    value_format: str, column: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        check_request(value_format, column, COLUMNS, options)


def test_all_problems_are_reported_together() -> None:
    with pytest.raises(ConfigError) as raised:
        check_request("jsn", "body", COLUMNS, {"mode": "x"})
    assert len(raised.value.problems) == 3


def test_name_that_exists_in_other_case_is_refused() -> None:
    check_names(COLUMNS, ["id"], None)
    check_names(COLUMNS, ["Timestamp"], "order")
    with pytest.raises(ConfigError, match='Timestamp already exists; set into="record"'):
        check_names(COLUMNS, ["id", "Timestamp"], None)
    with pytest.raises(ConfigError, match="Key already exists; choose another name"):
        check_names(COLUMNS, ["id"], "Key")
    with pytest.raises(ConfigError, match="_error already exists"):
        check_names(COLUMNS, ["_error"], None)
