"""The job `backfill`: a range and the stream after it have no gap and no overlap."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from plog.client.faces.blocking import Admin
from plog.spark.jobs.backfill.job import BackfillOptions, run_backfill
from plog.spark.jobs.table_files import TableFiles
from tests.spark.cluster import Cluster
from tests.spark.job_site import NOON_MS, JobSite
from tests.unit.spark.jobs.faulty_files import FaultyFiles


@pytest.fixture
def site(cluster: Cluster, new_topic: Callable[[], str], tmp_path: Path) -> JobSite:
    return JobSite.created(cluster, new_topic, tmp_path)


def run(site: JobSite, files: TableFiles | None = None, **changes: object) -> None:
    warehouse = site.options
    options = BackfillOptions(
        source=warehouse.source,
        table=warehouse.table,
        checkpoint=site.folder / "checkpoint",
        slice_size=6,
        trigger=warehouse.trigger,
    )
    options = replace(options, **changes)  # type: ignore[arg-type]
    run_backfill(site.cluster.spark, options, report=site.lines.append, files=files)


def test_range_and_stream_contain_each_record_once_after_faults(site: JobSite) -> None:
    site.add(*([b'{"id": 1}'] * 5), b"{", b'{"id": 2.5}')
    site.add(*([b'{"id": 1}'] * 2), partition=1)
    run_until(site, 12)
    # The stream reads what arrived after the plan, also in a new partition.
    site.add(b'{"id": 3}')
    with Admin(bootstrap_servers=site.cluster.bootstrap_servers) as admin:
        admin.create_partitions({site.topic: 3}).raise_first()
    site.add(b'{"id": 4}', partition=2)
    run_until(site, 45)
    run_until(site, 8)
    run(site)
    site.check(dead=[(0, 5)])
    site.add(b'{"id": 5}', partition=2)
    run(site)
    site.check(dead=[(0, 5)])
    assert "slice 3 of 3" in site.lines


def run_until(site: JobSite, change: int) -> None:
    """Run the job until it is killed before a change of files."""
    files = FaultyFiles(fail_at=change)
    with pytest.raises(Exception, match=r"before change|Killed"):
        run(site, files)
    assert files.has_failed


def test_range_of_times_is_stored_without_the_stream(site: JobSite) -> None:
    site.add(*([b'{"id": 1}'] * 5))
    run(site, from_ms=NOON_MS + 1, to_ms=NOON_MS + 3, stream=False)
    assert site.rows("partition", "offset") == [(0, 1), (0, 2)]
    run(site)
    assert site.rows("partition", "offset") == [(0, 1), (0, 2), (0, 3), (0, 4)]
