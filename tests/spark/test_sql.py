"""The job `sql`: topics are tables, and only those that the query names are read."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from plog.cli.spark.jobs.sql import SqlCommandOptions, run
from plog.records.codec import Record
from plog.settings import ConfigError
from plog.spark.jobs.sql.job import run_sql
from plog.spark.jobs.sql.sql_options import SqlOptions
from tests.spark.cluster import Cluster
from tests.spark.job_site import NOON_MS


@dataclass
class Site:
    """A cluster with the topics CLICKS and LINES of queries."""

    cluster: Cluster
    clicks: str
    lines: str

    def options(self, query: str, **more: Any) -> SqlOptions:
        named = query.replace("CLICKS", f"`{self.clicks}`").replace("LINES", self.lines)
        client = {"bootstrap.servers": self.cluster.bootstrap_servers}
        return SqlOptions(client=client, query=named, **more)

    def rows(self, query: str, **more: Any) -> list[tuple[Any, ...]]:
        result = run_sql(self.cluster.spark, self.options(query, **more))
        return [tuple(row) for row in result.collect()]


@pytest.fixture
def site(cluster: Cluster, new_topic: Callable[[], str]) -> Site:
    """A topic of JSON values, whose name contains a dot, and one of text."""
    clicks, lines = f"{new_topic()}.clicks", new_topic().replace("-", "_")
    cluster.create(clicks, 2)
    cluster.create(lines)
    values = [
        b'{"page": "/a", "ms": 5, "user": {"id": 1}, "_key": "field"}',
        b'{"page": "/b", "ms": 0.5, "tags": ["x", "y"]}',
        b"not json",
        None,
    ]
    for number, value in enumerate(values):
        record = Record(timestamp=NOON_MS + number * 1000, key=b"k%d" % number, value=value)
        cluster.produce(clicks, number % 2, [record])
    headers = [("trace", b"7")]
    lines_found = [b"GET /a", b"\xff"]
    cluster.produce(
        lines, 0, [Record(timestamp=NOON_MS, value=one, headers=headers) for one in lines_found]
    )
    return Site(cluster, clicks, lines)


def test_fields_and_columns_of_topics_are_queried(site: Site) -> None:
    query = (
        "with c as (select * from CLICKS) select c.page, c.ms, c.user.id, c.tags[1], c._key,"
        " c.value_key, c._partition, c._corrupt_record, l.value from c left join LINES l"
        " on l.value = concat('GET ', c.page) where c._offset >= 0 order by c._timestamp"
    )
    assert site.rows(query) == [
        ("/a", 5.0, 1, None, "k0", "field", 0, None, "GET /a"),
        ("/b", 0.5, None, "y", "k1", None, 1, None, None),
        (None, None, None, None, "k2", None, 0, "not json", None),
        (None, None, None, None, "k3", None, 1, None, None),
    ]
    [row] = site.rows("select count(*), min(_headers[0].value) from LINES")
    assert row == (2, "7")
    range_ = {"since_ms": NOON_MS + 1000, "before_ms": NOON_MS + 3000}
    site.cluster.spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        counted = site.rows("select count(*), min(_key) from CLICKS", **range_)
    finally:
        site.cluster.spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    assert counted == [(2, "k1")]
    text = site.rows("select value from CLICKS where _key = 'k2'", sample_size=0)
    assert text == [("not json",)]


def test_result_is_printed(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    job = site.options("select _offset n, value, array(1) a, null n from LINES order by _offset")
    for output_format in ("csv", "json"):
        run(site.cluster.spark, SqlCommandOptions(job=job, output_format=output_format))
    *table, first, second = capsys.readouterr().out.splitlines()
    assert table == ["n,value,a,n", "0,GET /a,[1],", "1,\ufffd,[1],"]
    assert json.loads(first) == {"n": 0, "value": "GET /a", "a": [1], "n_2": None}
    assert json.loads(second)["value"] == "\ufffd"


def test_wrong_query_is_an_error(site: Site) -> None:
    spark = site.cluster.spark
    before = spark.sql("show tables").collect()  # Other tests share the session.
    for query, message in (
        ("select * from LINESx", f"did you mean {site.lines}"),
        ("select nothing from LINES", "cannot be resolved"),
        ("select * form x", "Syntax error"),
        ("create table x as select * from LINES", "it is not a query"),
        ("drop table x", "it is not a query"),
        ("insert into LINES values (1)", "it is not a query"),
    ):
        with pytest.raises(ConfigError, match=message) as raised:
            site.rows(query)
        assert "Project" not in str(raised.value)
    assert spark.sql("show tables").collect() == before
    assert ("value", "string") in [row[:2] for row in site.rows("describe LINES")]
