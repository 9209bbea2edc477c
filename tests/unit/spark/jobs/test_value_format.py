"""plog/spark/jobs/value_format.py: the format of values."""

from __future__ import annotations

import pytest

from plog.settings import ConfigError
from plog.spark.jobs.value_format import ValueFormat


@pytest.mark.parametrize(
    ("name", "schema", "message"),
    [
        ("jsn", None, "did you mean json"),
        ("xml", None, "use one of raw, text"),
        ("avro", None, "set a schema"),
        ("raw", "id int", "the format raw has one column"),
    ],
)
def test_wrong_format_is_refused(name: str, schema: str | None, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ValueFormat(name=name, schema=schema)


def test_only_json_without_a_schema_is_inferred() -> None:
    assert ValueFormat(name="json").is_inferred
    assert not ValueFormat(name="json", schema="id int").is_inferred
    assert not ValueFormat(name="text").is_inferred
