"""Faults while jobs run: the broker restarts, and topics are expanded, deleted and truncated.

All jobs that stream run at the same time, so that each fault happens once.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from plog.client.audit.audit_options import AuditOptions
from plog.client.faces.blocking import Admin, Producer
from plog.spark.jobs.audit.job import AuditJobOptions, run_audit_job
from plog.spark.jobs.sql.job import run_sql
from plog.spark.jobs.sql.sql_options import SqlOptions
from plog.types import TopicPartition
from tests.helpers.eventually import eventually
from tests.spark.cluster import Cluster
from tests.spark.job_site import HOUR_MS, NOON_MS
from tests.spark.running_jobs import (
    CLICKS,
    MORE,
    SESSIONS,
    TIMEOUT_S,
    WINDOWS,
    JobFolders,
    running,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from plogd.testing.broker_process import BrokerProcess


def test_jobs_survive_restarts_and_expansions_and_report_lost_records(
    spark: SparkSession, start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    broker = start_broker()
    site = JobFolders(Cluster(spark, broker.bootstrap_servers), tmp_path)
    for topic, partitions in ((CLICKS, 2), (MORE, 1), (WINDOWS, 1), (SESSIONS, 1)):
        site.cluster.create(topic, partitions)
    site.add("a", "b")
    site.add("m", topic=MORE)
    # Spark looks for data sources once; other threads would not find plog meanwhile.
    assert len(site.cluster.rows("plog", subscribe=CLICKS)) == 2
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        with running(site, fail_on_data_loss=True) as jobs:
            jobs.wait_for_rows({"backfill": 0}, 3)
            broker.kill()
            broker.start()
            site.add("c")
            admin.create_partitions({CLICKS: 3}).raise_first()
            site.add("d", partition=2)
            jobs.wait_for_rows({"backfill": 2}, 5)
            admin.delete_topics([MORE]).raise_first()
            failures = jobs.failures()
        loss = f"offsets from 1 of {MORE}-0 are missing: the partition does not exist"
        assert {job: error for job, error in failures.items() if loss not in error} == {}
        site.add("lost", "lost", "e", hour=1)
        admin.delete_records({TopicPartition(CLICKS, 0): 5}).raise_first()
        with running(site, fail_on_data_loss=False) as jobs:
            jobs.wait_for_rows({}, 1)
            # It completes the windows and the sessions.
            site.add("z", partition=1, hour=9)
            jobs.wait_for_rows({}, 2)
            eventually(lambda: len(site.values(WINDOWS)) == 6, "windows", TIMEOUT_S)
            eventually(lambda: len(site.values(SESSIONS)) == 2, "sessions", TIMEOUT_S)
            eventually((tmp_path / "recommend/output/similar").exists, "items", TIMEOUT_S)
    found = site.values(WINDOWS).values()
    assert sorted((one["name"], one["total"]) for one in found) == [
        *((page, 5) for page in "abcd"),
        ("e", 1),
        ("m", 5),
    ]
    counts = sorted((one["start_ms"], one["count"]) for one in site.values(SESSIONS).values())
    assert counts == [(NOON_MS, 5), (NOON_MS + HOUR_MS, 1)]
    stored = [*((CLICKS, 0, offset) for offset in (0, 1, 2, 5)), (CLICKS, 1, 0), (CLICKS, 2, 0)]
    for job in ("search-index", "warehouse", "backfill"):
        assert (job, site.places(job)) == (job, [*stored, (MORE, 0, 0)])
    similar = spark.read.parquet(str(tmp_path / "recommend/output/similar"))
    items = sorted(similar.selectExpr("item", "count").collect())
    assert items == [(page, 1) for page in "abcdm" for _ in range(4)]


def test_queries_and_audits_wait_for_a_broker_that_restarts(
    spark: SparkSession, start_broker: Callable[..., BrokerProcess]
) -> None:
    broker = start_broker()
    with Producer(bootstrap_servers=broker.bootstrap_servers, plog_audit_enable=True) as producer:
        for page in ("a", "b"):
            producer.send(CLICKS, page.encode()).result()
    client = {"bootstrap.servers": broker.bootstrap_servers}
    query = "select count(*) from clicks where _offset >= 0"
    counted = run_sql(spark, SqlOptions(client=client, query=query))
    audit = AuditJobOptions(client=client, audit=AuditOptions(topics=(CLICKS,)))
    with ThreadPoolExecutor(1) as pool:
        broker.kill()
        started = pool.submit(broker.start)
        assert counted.collect() == [(2,)]
        started.result()
        broker.kill()
        started = pool.submit(broker.start)
        result = run_audit_job(spark, audit)
        started.result()
    assert (result.problems, result.topics[CLICKS].found) == (0, 2)
