"""Counting records with a consumer: producers, windows, retention and truncated logs."""

from __future__ import annotations

import pytest

from plog.audit import AuditTotals, AuditWindow
from plog.client.audit.audit_run import AuditError
from plog.client.audit.record_counts import count_records
from plog.errors import OffsetOutOfRange
from plog.types import TopicPartition
from tests.unit.client.audit.scripted_cluster import ScriptedCluster

CLICKS = TopicPartition("clicks", 0)


@pytest.fixture
def cluster() -> ScriptedCluster:
    made = ScriptedCluster()
    made.create("clicks")
    return made


def test_records_are_counted_by_window_and_producer(cluster: ScriptedCluster) -> None:
    for value, producer, at_ms in (
        (b"a", "web-1", 60_000),
        (None, "web-1", 119_999),
        (b"c", None, 119_999),
        (b"d", "web-1", 120_000),
    ):
        cluster.append(CLICKS, value, producer, at_ms)
    offsets: list[int] = []
    counts = dict(count_records(cluster, {CLICKS: (0, 4)}, offsets.append).items())
    assert counts == {
        AuditWindow("clicks", 60_000, "web-1"): AuditTotals.of([b"a", None]),
        AuditWindow("clicks", 60_000, None): AuditTotals.of([b"c"]),
        AuditWindow("clicks", 120_000, "web-1"): AuditTotals.of([b"d"]),
    }
    assert sum(offsets) == 4


def test_counting_continues_after_records_that_retention_deletes(
    cluster: ScriptedCluster,
) -> None:
    for value in (b"a", b"b", b"c"):
        cluster.append(CLICKS, value)
    cluster.delete_before(CLICKS, 2)
    [(_, totals)] = count_records(cluster, {CLICKS: (0, 3)}, lambda _: None).items()
    assert totals == AuditTotals.of([b"c"])


def test_range_that_retention_deletes_as_a_whole_is_empty(cluster: ScriptedCluster) -> None:
    cluster.delete_before(CLICKS, 5)
    assert len(count_records(cluster, {CLICKS: (0, 3)}, lambda _: None)) == 0


def test_log_that_ends_before_the_range_is_an_error(cluster: ScriptedCluster) -> None:
    cluster.append(CLICKS, b"a")
    with pytest.raises(AuditError, match="recreated or truncated, run the audit again"):
        count_records(cluster, {CLICKS: (0, 2)}, lambda _: None)


def test_offset_that_is_out_of_range_without_retention_is_an_error(
    cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.delete_before(CLICKS, 1)
    monkeypatch.setattr(cluster, "starts", lambda partitions: dict.fromkeys(partitions, 0))
    with pytest.raises(OffsetOutOfRange, match="clicks-0 does not contain offset 0"):
        count_records(cluster, {CLICKS: (0, 1)}, lambda _: None)
