"""The job `audit`: Spark counts exactly what producers count, and finds what they miss."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from plog.audit import AUDIT_HEADER, AuditCounts, producer_of
from plog.cli.spark.jobs.audit import AuditCommandOptions, run
from plog.client.audit.audit_options import AuditOptions
from plog.client.audit.record_counts import count_records
from plog.client.faces.blocking import Producer
from plog.client.topic_reader import TopicReader
from plog.records.codec import Record
from plog.spark.jobs.audit.job import AuditJobOptions, records, run_audit_job, window_totals
from plog.spark.jobs.audit.window_rows import WindowRow, counts_of
from plog.types import TopicPartition
from tests.spark.cluster import Cluster
from tests.spark.job_site import NOON_MS

Headers = list[tuple[str, bytes | None]]
NAMED: Headers = [(AUDIT_HEADER, b"web-1")]
HEADERS: tuple[Headers, ...] = (
    NAMED,
    [("trace", b"1"), *NAMED, (AUDIT_HEADER, b"web-2")],
    [(AUDIT_HEADER, b"\xff")],
    [(AUDIT_HEADER, None)],
    [("trace", b"1")],
    [],
)


def test_spark_counts_what_producers_count(cluster: Cluster, new_topic: Callable[[], str]) -> None:
    topic = new_topic()
    cluster.create(topic, 2)
    written = [
        Record(timestamp=at_ms, value=value, headers=headers)
        for at_ms in (0, 59_999, 60_000, NOON_MS)
        for value in (None, b"", b"\x00\xff", b"a" * 300)
        for headers in HEADERS
    ]
    expected = AuditCounts()
    for record in written:
        expected.add(topic, record.timestamp, record.value, producer_of(record.headers))
    for number in (0, 1):
        cluster.produce(topic, number, written[number::2])
    client = {"bootstrap.servers": cluster.bootstrap_servers}
    half = len(written) // 2
    ranges = {TopicPartition(topic, number): (0, half) for number in (0, 1)}
    rows = window_totals(records(cluster.spark, client, ranges)).collect()
    found = counts_of(WindowRow(*row) for row in rows)
    assert dict(found.items()) == dict(expected.items())
    with TopicReader(client) as audited:
        found = count_records(audited, ranges, lambda _: None)
    assert dict(found.items()) == dict(expected.items())


def test_job_accounts_for_records_and_finds_unreported_ones(
    cluster: Cluster, new_topic: Callable[[], str], capsys: pytest.CaptureFixture[str]
) -> None:
    topic, empty = new_topic(), new_topic()
    for name in (topic, empty):
        cluster.create(name, 2)
    with Producer(
        bootstrap_servers=cluster.bootstrap_servers,
        plog_audit_enable=True,
        plog_audit_producer="web-1",
    ) as producer:
        for number in range(100):
            producer.send(topic, b"%d" % number, timestamp=NOON_MS + number * 1000)
    job = AuditJobOptions(
        client={"bootstrap.servers": cluster.bootstrap_servers},
        audit=AuditOptions(topics=(topic, empty)),
    )
    result = run_audit_job(cluster.spark, job)
    assert result.problems == 0
    assert (result.topics[topic].windows, result.topics[topic].found) == (2, 100)
    assert result.topics[empty].windows == 0
    cluster.produce(topic, 0, [Record(timestamp=NOON_MS, value=b"1", headers=NAMED)])
    cluster.produce(topic, 0, [Record(timestamp=NOON_MS, value=b"2")])
    assert run(cluster.spark, AuditCommandOptions(job=job)) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == (
        f"{topic} 2026-01-01T12:00:00Z web-1: 1 records repeated (reported 60, found 61)"
    )
    assert lines[1].startswith(f"unreported: {topic} (no producer): 1 records in 1 windows")
