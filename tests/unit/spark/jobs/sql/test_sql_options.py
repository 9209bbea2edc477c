"""The options of a query."""

from __future__ import annotations

from typing import Any

import pytest

from plog.settings import ConfigError
from plog.spark.jobs.sql.sql_options import SqlOptions


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"query": " "}, "it is empty"),
        ({"query": "select 1", "since_ms": 5, "before_ms": 5}, "its end is not after its start"),
    ],
)
def test_wrong_options_are_errors(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SqlOptions(client={}, **options)


def test_headers_are_read_if_the_query_names_them() -> None:
    assert SqlOptions(client={}, query="select _HEADERS from t").uses_headers
    assert not SqlOptions(client={}, query="select * from t", since_ms=0).uses_headers
