"""All jobs that stream, running at the same time in one session, with a folder for each."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plog.records.record import Record
from plog.search.index_search import search_index
from plog.spark.jobs.backfill.job import BackfillOptions, run_backfill
from plog.spark.jobs.job_source import JobSource, JobTrigger
from plog.spark.jobs.realtime.job import run_realtime
from plog.spark.jobs.realtime.realtime_options import RealtimeOptions
from plog.spark.jobs.recommend.job import run_recommend
from plog.spark.jobs.recommend.recommend_options import RecommendOptions
from plog.spark.jobs.search_index.job import run_search_index
from plog.spark.jobs.search_index.search_index_options import SearchIndexOptions
from plog.spark.jobs.sessions.job import run_sessions
from plog.spark.jobs.sessions.sessions_options import SessionsOptions
from plog.spark.jobs.value_format import ValueFormat
from plog.spark.jobs.warehouse.job import run_warehouse
from plog.spark.jobs.warehouse.warehouse_options import TableOptions, WarehouseOptions
from tests.helpers.eventually import eventually
from tests.spark.cluster import Cluster
from tests.spark.job_site import HOUR_MS, NOON_MS

CLICKS, MORE = "clicks", "more"
WINDOWS, SESSIONS = "windows", "sessions"
TIMEOUT_S = 120
_PAGES = ValueFormat(name="json", schema="page string")
_ALWAYS = JobTrigger(interval_s=0)


@dataclass
class JobFolders:
    """A broker with two topics, and a folder for each job that reads them."""

    cluster: Cluster
    folder: Path

    def add(self, *pages: str, topic: str = CLICKS, partition: int = 0, hour: int = 0) -> None:
        """Add records with the key ``k``."""
        records = [
            Record(timestamp=NOON_MS + hour * HOUR_MS, key=b"k", value=b'{"page": "%s"}' % one)
            for one in (page.encode() for page in pages)
        ]
        self.cluster.produce(topic, partition, records)

    def of(self, job: str) -> Path:
        """Return the folder of a job."""
        return self.folder / job

    def source(self, *, fail_on_data_loss: bool) -> JobSource:
        """Return what all jobs read."""
        return JobSource(
            bootstrap_servers=self.cluster.bootstrap_servers,
            topics=(CLICKS, MORE),
            fail_on_data_loss=fail_on_data_loss,
        )

    def values(self, topic: str) -> dict[bytes, dict[str, object]]:
        """Return the values in a topic of results by their keys; a repeated batch repeats them."""
        rows = self.cluster.rows("plog", subscribe=topic)
        return {row[0]: json.loads(row[1]) for row in rows}

    def places(self, job: str) -> list[tuple[str, int, int]]:
        """Return topic, partition and offset of the records that a job has stored."""
        own = self.of(job)
        if job == "search-index":
            matches = search_index(own / "index", "page", limit=1000)
            return sorted((one.topic, one.partition, one.offset) for one in matches)
        tables = [own / "table" / topic for topic in (CLICKS, MORE)]
        reader = self.cluster.spark.read
        return sorted(
            (topic, partition, offset)
            for table in tables
            for topic, partition, offset in reader.parquet(str(table))
            .select("topic", "partition", "offset")
            .collect()
        )


def _run_realtime(site: JobFolders, source: JobSource) -> None:
    options = RealtimeOptions(
        source=source,
        checkpoint=str(site.of("realtime")),
        values=_PAGES,
        by="page",
        output_topic=WINDOWS,
        trigger=_ALWAYS,
    )
    run_realtime(site.cluster.spark, options)


def _run_sessions(site: JobFolders, source: JobSource) -> None:
    checkpoint = str(site.of("sessions"))
    options = SessionsOptions(
        source=source, checkpoint=checkpoint, output_topic=SESSIONS, trigger=_ALWAYS
    )
    run_sessions(site.cluster.spark, options)


def _run_recommend(site: JobFolders, source: JobSource) -> None:
    options = RecommendOptions(
        source=source,
        output=site.of("recommend") / "output",
        checkpoint=str(site.of("recommend") / "checkpoint"),
        values=_PAGES,
        item="page",
        trigger=_ALWAYS,
    )
    run_recommend(site.cluster.spark, options)


def _run_search_index(site: JobFolders, source: JobSource) -> None:
    own = site.of("search-index")
    options = SearchIndexOptions(
        source=source,
        index=own / "index",
        checkpoint=str(own / "checkpoint"),
        shards=1,
        trigger=_ALWAYS,
    )
    run_search_index(site.cluster.spark, options)


def _run_warehouse(site: JobFolders, source: JobSource) -> None:
    run_warehouse(site.cluster.spark, WarehouseOptions(source=source, **_table(site, "warehouse")))


def _run_backfill(site: JobFolders, source: JobSource) -> None:
    run_backfill(site.cluster.spark, BackfillOptions(source=source, **_table(site, "backfill")))


def _table(site: JobFolders, job: str) -> dict[str, Any]:
    """Return the options that both jobs have."""
    own = site.of(job)
    table = TableOptions(output=own / "table", values=_PAGES)
    return {"table": table, "checkpoint": own / "checkpoint", "trigger": _ALWAYS}


JOBS: Mapping[str, Callable[[JobFolders, JobSource], None]] = {
    "realtime": _run_realtime,
    "sessions": _run_sessions,
    "recommend": _run_recommend,
    "search-index": _run_search_index,
    "warehouse": _run_warehouse,
    "backfill": _run_backfill,
}
"""Functions that run a job until its query is stopped."""


@dataclass
class Running:
    """Jobs that run in threads."""

    site: JobFolders
    results: dict[str, Future[None]]

    def processed(self, job: str) -> int | None:
        """Return the number of records that a query has processed, or None without a query."""
        folder = str(self.site.of(job))
        for query in self.site.cluster.spark.streams.active:
            if folder in query.name:
                return sum(progress.numInputRows for progress in query.recentProgress)
        return None

    def wait_for_rows(self, others: Mapping[str, int], rows: int) -> None:
        """Wait until each job has processed `rows` records; `others` has the numbers of some jobs.

        A job that ends fails the test.
        """
        for job, result in self.results.items():

            def is_reached(job: str = job, result: Future[None] = result) -> bool:
                assert not result.done(), (job, result.exception())
                found = self.processed(job)
                return found is not None and found >= others.get(job, rows)

            eventually(is_reached, f"record in {job}", timeout_s=TIMEOUT_S)

    def stopped(self) -> bool:
        """Stop the queries; return whether all jobs have ended."""
        for query in self.site.cluster.spark.streams.active:
            if str(self.site.folder) in query.name:
                query.stop()
        return all(result.done() for result in self.results.values())

    def failures(self) -> dict[str, str]:
        """Wait until all jobs have failed, and return their errors."""
        return {job: str(result.exception(TIMEOUT_S)) for job, result in self.results.items()}


@contextmanager
def running(site: JobFolders, *, fail_on_data_loss: bool) -> Iterator[Running]:
    """Run all jobs; stop their queries at the end."""
    source = site.source(fail_on_data_loss=fail_on_data_loss)
    with ThreadPoolExecutor(len(JOBS)) as pool:
        jobs = Running(site, {job: pool.submit(run, site, source) for job, run in JOBS.items()})
        try:
            yield jobs
        finally:
            eventually(jobs.stopped, "end of all jobs")
