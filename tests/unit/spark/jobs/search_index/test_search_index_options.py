"""plog/spark/jobs/search_index/search_index_options.py: which fields are indexed."""

from __future__ import annotations

from pathlib import Path

import pytest

from plog.settings import ConfigError
from plog.spark.jobs.job_source import JobSource
from plog.spark.jobs.search_index.search_index_options import SearchIndexOptions, text_fields
from plog.spark.jobs.value_format import ValueFormat

FIELDS = [("id", "bigint"), ("title", "string"), ("body", "string")]


def test_strings_are_indexed_unless_fields_are_named() -> None:
    assert text_fields(FIELDS, []) == ("title", "body")
    assert text_fields(FIELDS, ["body", "id"]) == ("body", "id")


@pytest.mark.parametrize(
    ("fields", "wanted", "message"),
    [
        (FIELDS, ["titlee"], "cannot index titlee: there is no such field; did you mean title?"),
        (FIELDS, ["x"], "there is no such field; the fields are id, title, body"),
        (FIELDS[:1], [], "no field is a string; name the fields to index"),
    ],
)
def test_wrong_fields_are_refused(
    fields: list[tuple[str, str]], wanted: list[str], message: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        text_fields(fields, wanted)
    assert message in str(raised.value)


def test_values_that_are_not_decoded_are_refused() -> None:
    source = JobSource(bootstrap_servers="b:1", topics=("t",))
    with pytest.raises(ConfigError, match="cannot index values in the format raw"):
        SearchIndexOptions(source=source, index=Path("i"), checkpoint="c", values=ValueFormat())
