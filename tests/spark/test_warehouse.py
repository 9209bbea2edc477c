"""The job `warehouse`: each record is in the table once, whatever interrupts the job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from plog.spark.jobs.job_source import JobSource
from plog.spark.jobs.value_format import ValueFormat
from tests.spark.cluster import Cluster
from tests.spark.job_site import HOUR_MS, NOON_MS, JobSite
from tests.unit.spark.jobs.faulty_files import FaultyFiles


@pytest.fixture
def site(cluster: Cluster, new_topic: Callable[[], str], tmp_path: Path) -> JobSite:
    return JobSite.created(cluster, new_topic, tmp_path)


def test_records_are_stored_by_hour_and_closed_hours_are_merged(site: JobSite) -> None:
    site.values = ValueFormat()
    site.add(b"a", b"b")
    site.add(None, b"d", partition=1, at_ms=NOON_MS + HOUR_MS - 1)
    site.run()
    site.check()
    assert site.rows("key", "value", "cast(timestamp as string)", "hour") == [
        (b"k", b"a", "2026-01-01 12:00:00", 12),
        (b"k", b"b", "2026-01-01 12:00:00.001", 12),
        (b"k", None, "2026-01-01 12:59:59.999", 12),
        (b"k", b"d", "2026-01-01 13:00:00", 13),
    ]
    [merged, single] = site.files()
    assert merged.startswith("date=2026-01-01/hour=12/merged-")
    assert single.startswith("date=2026-01-01/hour=13/part-")
    assert site.lines[0] == "batch 0: 0 records of 0 topics in 0 files, 0 dead letters"
    assert site.lines[1] == "batch 1: 4 records of 1 topic in 3 files, 0 dead letters"
    # A late record.
    site.add(b"e")
    site.run()
    site.check()
    [again, _] = site.files()
    assert again.startswith("date=2026-01-01/hour=12/merged-")
    assert again != merged
    site.run()
    assert site.files()[0] == again


def test_columns_are_added_and_widened_and_misfits_are_dead_letters(site: JobSite) -> None:
    site.add(b'{"id": 1, "timestamp": "t"}', None, b'{"id": null, "new": {"a": [1]}}', b"{")
    site.run()
    site.check(dead=[(0, 3)])
    assert site.rows("id", "value_timestamp", "new") == [
        (1, "t", None),
        (None, None, None),
        (None, None, '{"a":[1]}'),
    ]
    site.add(b'{"id": 2.5}', b'{"id": "x"}', b'{"ID": 1}', b'{"new": 3, "added": true}')
    site.run()
    site.check(dead=[(0, 3), (0, 5), (0, 6)])
    assert site.rows("id", "new", "added")[-2:] == [(2.5, None, None), (None, "3", True)]
    assert dict(site.table().dtypes)["id"] == "double"
    assert f"widened the column id of {site.topic} to double" in site.lines
    letters = {value: headers["plog.error"] for value, headers in site.letters()}
    assert letters == {
        b"{": b"the value is not JSON that fits the schema",
        b'{"id": "x"}': b"the value is not JSON that fits the schema",
        b'{"ID": 1}': b"the name of a field differs from a column only in case: ID",
    }


def test_schema_is_changed_on_restart_and_dead_letters_go_to_a_topic(
    site: JobSite, new_topic: Callable[[], str]
) -> None:
    dead = new_topic()
    site.cluster.create(dead)
    site.values = ValueFormat(name="csv", schema="id int, name string")
    site.add(b"1,a", b"x,b")
    site.run(dead_letter_topic=dead)
    site.values = ValueFormat(name="csv", schema="id bigint, name string, more float")
    site.add(b"5000000000,c,0.5")
    site.run(dead_letter_topic=dead)
    assert site.rows("offset", "id", "name", "more") == [
        (0, 1, "a", None),
        (2, 5_000_000_000, "c", 0.5),
    ]
    assert [row[1] for row in site.cluster.rows("plog", subscribe=dead)] == [b"x,b"]
    site.values = ValueFormat(name="csv", schema="id string")
    site.add(b"1")
    with pytest.raises(Exception, match="cannot change the column id from bigint to string"):
        site.run()


def test_topics_have_a_folder_each_and_empty_topics_have_none(
    site: JobSite, new_topic: Callable[[], str]
) -> None:
    other, empty = f"_{new_topic()}", new_topic()
    for topic in (other, empty):
        site.cluster.create(topic)
    site.add(b'{"a": 1}')
    source = JobSource(
        bootstrap_servers=site.cluster.bootstrap_servers, topics=(site.topic, other, empty)
    )
    site.run()
    site.add(b'{"b": 1}', topic=other)
    options = replace(site.options, source=source)
    # The source reads new topics of a query from their start.
    from plog.spark.jobs.warehouse.job import run_warehouse

    run_warehouse(site.cluster.spark, options, report=site.lines.append)
    names = {path.name for path in site.output.iterdir()}
    assert names == {".plog", site.topic, f"%5F{other[1:]}"}
    assert site.table(f"%5F{other[1:]}").select("topic", "b").collect() == [(other, 1)]


def test_batch_is_stored_once_when_the_driver_fails_at_some_steps(site: JobSite) -> None:
    """Spark repeats the batch; test_warehouse_folder.py covers all steps without Spark."""
    site.add(b'{"id": 1}', b"{")
    site.add(b'{"id": 2}', partition=1)
    # Before anything is published, between two files, and in the merge after the query.
    faults = 0
    for step in (0, 16, 20):
        site.add(b'{"id": 3}', b"{", b'{"id": 4}', at_ms=NOON_MS + HOUR_MS)
        assert fails(site, FaultyFiles(fail_at=step))
        # The repetition may also fail, while it removes what the first attempt has left.
        repeated = FaultyFiles(fail_at=5)
        fails(site, repeated)
        faults += repeated.has_failed
    assert faults
    site.run()
    end = site.offsets[site.topic, 0]
    site.check(dead=[(0, 1), *((0, offset) for offset in range(3, end, 3))])


def fails(site: JobSite, files: FaultyFiles) -> bool:
    """Run the job, and return whether the fault has ended it."""
    try:
        site.run(files)
    except Exception:
        assert files.has_failed
        return True
    return False


def test_folder_of_another_query_is_refused(site: JobSite) -> None:
    site.add(b"{}")
    site.run()
    options = replace(site.options, checkpoint=site.folder / "other")
    from plog.spark.jobs.warehouse.job import run_warehouse

    with pytest.raises(Exception, match="use the checkpoint of that query, or another folder"):
        run_warehouse(site.cluster.spark, options, report=site.lines.append)
    site.check()
