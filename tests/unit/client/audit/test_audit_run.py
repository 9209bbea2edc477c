"""The order of an audit's steps: concurrent writes, retention and deleted topics."""

from __future__ import annotations

import pytest

from plog.audit import AUDIT_TOPIC, AuditCounts, AuditReport, FindingKind
from plog.audit.result import AuditResult
from plog.client.audit.audit_options import AuditOptions
from plog.client.audit.audit_run import AuditError, run_audit
from plog.client.audit.record_counts import count_records
from plog.client.errors import ConfigError
from plog.errors import UnknownTopicOrPartition
from plog.types import TopicPartition, Uuid
from tests.unit.client.audit.scripted_cluster import REPORTS, ScriptedCluster

CLICKS = TopicPartition("clicks", 0)
NOW_MS = 1_000_000
MINUTE_MS = 60_000


@pytest.fixture
def cluster() -> ScriptedCluster:
    made = ScriptedCluster()
    made.create("clicks", partitions=2)
    return made


def report(
    number: int,
    *values: bytes | None,
    at_ms: int = MINUTE_MS,
    topic: str = "clicks",
    producer: str = "web-1",
    is_final: bool = False,
    since_ms: int = 0,
) -> AuditReport:
    counts = AuditCounts()
    for value in values:
        counts.add(topic, at_ms, value, producer)
    return AuditReport(
        producer=producer,
        instance=f"{sum(producer.encode()):032x}",
        number=number,
        since_ms=since_ms,
        until_ms=NOW_MS,
        is_final=is_final,
        counts=counts,
    )


def audit(cluster: ScriptedCluster, options: AuditOptions | None = None) -> AuditResult:
    return run_audit(
        cluster,
        options or AuditOptions(),
        lambda ranges: count_records(cluster, ranges, lambda _: None),
        now_ms=NOW_MS,
    )


def kinds(result: AuditResult) -> list[FindingKind]:
    return [finding.kind for finding in result.findings]


def test_records_of_all_partitions_are_accounted_for(cluster: ScriptedCluster) -> None:
    cluster.append(CLICKS, b"a")
    cluster.append(TopicPartition("clicks", 1), None)
    cluster.report(report(1, b"a"))
    cluster.report(report(1, b"a"))
    cluster.report(report(2, None, is_final=True))
    result = audit(cluster)
    assert result.problems == 0
    assert result.repeated_reports == 1
    assert (result.topics["clicks"].reported, result.topics["clicks"].found) == (2, 2)


def test_record_written_during_the_audit_is_not_a_finding(cluster: ScriptedCluster) -> None:
    cluster.append(CLICKS, b"a")
    cluster.report(report(1, b"a"))

    def write() -> None:
        cluster.append(CLICKS, b"b")
        cluster.report(report(2, b"b"))

    cluster.before_read = write
    assert audit(cluster).problems == 0


def test_record_counted_before_its_report_arrives_is_not_a_finding(
    cluster: ScriptedCluster,
) -> None:
    cluster.append(CLICKS, b"a")
    cluster.append(CLICKS, b"b")
    cluster.report(report(1, b"a"))
    cluster.before_read = lambda: cluster.report(report(2, b"b", is_final=True))
    assert audit(cluster).problems == 0


def test_lost_record_is_found_although_later_ones_are_written(cluster: ScriptedCluster) -> None:
    cluster.append(CLICKS, b"a")
    cluster.report(report(1, b"a", b"lost"))

    def write() -> None:
        cluster.append(CLICKS, b"b")
        cluster.report(report(2, b"b"))

    cluster.before_read = write
    assert kinds(audit(cluster)) == [FindingKind.LOST]


def test_loss_and_repetition_in_a_window_are_found_by_the_checksum(
    cluster: ScriptedCluster,
) -> None:
    for value in (b"a", b"a"):
        cluster.append(CLICKS, value)
    cluster.report(report(1, b"a", b"b", is_final=True))
    assert kinds(audit(cluster)) == [FindingKind.DIFFERENT]


def test_windows_with_deleted_records_are_not_compared(cluster: ScriptedCluster) -> None:
    for minute in (1, 2, 3):
        cluster.append(CLICKS, b"a", at_ms=minute * MINUTE_MS)
        cluster.report(report(minute, b"a", at_ms=minute * MINUTE_MS, is_final=minute == 3))
    cluster.delete_before(CLICKS, 1)
    result = audit(cluster)
    assert result.problems == 0
    [skipped] = result.skipped
    assert (skipped.windows, skipped.reported, skipped.found) == (2, 2, 1)
    assert skipped.before_ms == 3 * MINUTE_MS
    assert result.topics["clicks"].windows == 1


def test_retention_during_the_audit_is_not_loss(cluster: ScriptedCluster) -> None:
    for minute in (1, 2):
        cluster.append(CLICKS, b"a", at_ms=minute * MINUTE_MS)
        cluster.report(report(minute, b"a", at_ms=minute * MINUTE_MS, is_final=minute == 2))
    cluster.before_read = lambda: cluster.delete_before(CLICKS, 2)
    result = audit(cluster)
    assert result.problems == 0
    # The partition is empty, so its records may have been in any window.
    assert result.skipped[0].reported == 2


def test_later_windows_are_compared_after_retention(cluster: ScriptedCluster) -> None:
    cluster.append(CLICKS, b"a")
    cluster.append(CLICKS, b"b", at_ms=5 * MINUTE_MS)
    cluster.report(report(1, b"a"))
    cluster.report(report(2, b"b", b"lost", at_ms=7 * MINUTE_MS))
    cluster.delete_before(CLICKS, 1)
    assert kinds(audit(cluster)) == [FindingKind.LOST]


def test_windows_before_the_oldest_report_are_not_compared(cluster: ScriptedCluster) -> None:
    cluster.append(CLICKS, b"a", at_ms=MINUTE_MS)
    cluster.append(CLICKS, b"b", at_ms=5 * MINUTE_MS)
    cluster.report(report(1, b"a"))
    cluster.report(report(2, b"b", at_ms=5 * MINUTE_MS, since_ms=2 * MINUTE_MS, is_final=True))
    cluster.delete_before(REPORTS, 1)
    result = audit(cluster)
    assert result.problems == 0
    assert [(skipped.windows, skipped.found) for skipped in result.skipped] == [(1, 1)]


def test_nothing_is_compared_when_all_reports_were_deleted(cluster: ScriptedCluster) -> None:
    cluster.append(CLICKS, b"a")
    cluster.report(report(1, b"a"))
    cluster.delete_before(REPORTS, 1)
    result = audit(cluster, AuditOptions(topics=("clicks",)))
    assert result.problems == 0
    assert result.skipped[0].found == 1


def test_missing_report_is_named_and_its_records_are_unreported(cluster: ScriptedCluster) -> None:
    for value in (b"a", b"b", b"c"):
        cluster.append(CLICKS, value)
    cluster.report(report(1, b"a"))
    cluster.report(report(3, b"c", is_final=True))
    result = audit(cluster)
    assert [(gap.first, gap.last) for gap in result.missing_reports] == [(2, 2)]
    assert [one.reason for one in result.unreported] == ["reports of this producer are missing"]
    assert result.findings == ()


def test_producer_that_was_killed_before_it_reported_is_listed_separately(
    cluster: ScriptedCluster,
) -> None:
    cluster.append(CLICKS, b"a", producer="web-2")
    cluster.append(CLICKS, b"a", producer=None)
    result = audit(cluster, AuditOptions(pattern="^cl"))
    assert result.findings == ()
    assert [one.finding.window.producer for one in result.unreported] == [None, "web-2"]
    assert "has never reported" in result.unreported[1].reason
    result = audit(cluster, AuditOptions(pattern="^cl", audited_only=True))
    assert [one.finding.window.producer for one in result.unreported] == ["web-2"]


def test_record_that_is_not_a_report_is_named(cluster: ScriptedCluster) -> None:
    cluster.append(CLICKS, b"a")
    cluster.report(report(1, b"a"))
    cluster.append(REPORTS, b"{", producer=None)
    [reason] = audit(cluster).invalid_reports
    assert reason.startswith("_plog_audit-0 at 1: invalid audit report: its value is not JSON")


def test_recent_records_need_not_be_reported_yet(cluster: ScriptedCluster) -> None:
    cluster.append(CLICKS, b"a", at_ms=NOW_MS - 1)
    cluster.report(report(1, topic="clicks"))
    result = audit(cluster, AuditOptions(topics=("clicks",)))
    assert (result.problems, result.pending) == (0, 1)


def test_lost_record_is_a_finding_in_a_recent_window(cluster: ScriptedCluster) -> None:
    cluster.report(report(1, b"a", at_ms=NOW_MS - 1))
    assert kinds(audit(cluster)) == [FindingKind.LOST]


def test_time_range_selects_windows(cluster: ScriptedCluster) -> None:
    for minute in (1, 2, 3):
        cluster.append(CLICKS, b"a", at_ms=minute * MINUTE_MS, producer=None)
    options = AuditOptions(topics=("clicks",), since_ms=2 * MINUTE_MS + 1, before_ms=3 * MINUTE_MS)
    [one] = audit(cluster, options).unreported
    assert one.finding.window.window_ms == 2 * MINUTE_MS


def test_empty_topic_is_accounted_for(cluster: ScriptedCluster) -> None:
    result = audit(cluster, AuditOptions(topics=("clicks",)))
    assert (result.problems, result.topics["clicks"].windows) == (0, 0)


def test_deleted_topic_is_noted_and_others_are_compared(cluster: ScriptedCluster) -> None:
    cluster.append(CLICKS, b"a")
    cluster.report(report(1, b"a"))
    cluster.report(report(2, b"a", topic="orders", is_final=True))
    result = audit(cluster)
    assert result.problems == 0
    assert result.notes == ("orders does not exist any more; its reports are not compared",)


def test_topic_recreated_during_the_audit_is_an_error(cluster: ScriptedCluster) -> None:
    cluster.append(CLICKS, b"a")
    cluster.before_read = lambda: cluster.topic_ids.update(clicks=Uuid(b"9" * 16))
    with pytest.raises(AuditError, match="deleted or recreated during the audit; run the audit"):
        audit(cluster, AuditOptions(topics=("clicks",)))


def test_topic_deleted_during_the_audit_is_an_error(cluster: ScriptedCluster) -> None:
    cluster.append(CLICKS, b"a")

    def delete() -> None:
        cluster.topic_ids.pop("clicks")

    cluster.before_read = delete
    with pytest.raises(AuditError, match="cannot audit clicks"):
        audit(cluster, AuditOptions(topics=("clicks",)))


def test_partition_added_during_the_audit_is_left_to_the_next_one(
    cluster: ScriptedCluster,
) -> None:
    cluster.append(CLICKS, b"a")
    cluster.report(report(1, b"a"))

    def expand() -> None:
        added = TopicPartition("clicks", 2)
        cluster.logs[added] = []
        cluster.append(added, b"b")
        cluster.report(report(2, b"b"))

    cluster.before_read = expand
    assert audit(cluster).problems == 0


def test_open_transaction_is_noted(cluster: ScriptedCluster) -> None:
    cluster.append(CLICKS, b"a")
    cluster.append(CLICKS, b"b")
    cluster.open_from[CLICKS] = 1
    [note] = audit(cluster, AuditOptions(topics=("clicks",))).notes
    assert "clicks-0 was read up to offset 1, where an open transaction starts" in note


def test_misspelled_topic_is_an_error_with_the_nearest_name(cluster: ScriptedCluster) -> None:
    with pytest.raises(UnknownTopicOrPartition, match="did you mean clicks"):
        audit(cluster, AuditOptions(topics=("click",)))


def test_cluster_without_reports_needs_a_topic(cluster: ScriptedCluster) -> None:
    with pytest.raises(ConfigError, match=r"set plog\.audit\.enable=true"):
        audit(cluster)
    with pytest.raises(ConfigError, match="matches none"):
        audit(cluster, AuditOptions(pattern="^orders"))


def test_topic_of_reports_is_not_audited(cluster: ScriptedCluster) -> None:
    cluster.append(CLICKS, b"a")
    cluster.report(report(1, b"a", is_final=True))
    assert list(audit(cluster, AuditOptions(pattern=".")).topics) == ["clicks"]
    with pytest.raises(ConfigError, match="it contains the reports"):
        AuditOptions(topics=(AUDIT_TOPIC,))


def test_record_may_be_reported_until_the_grace_period_has_passed(
    cluster: ScriptedCluster,
) -> None:
    cluster.append(CLICKS, b"a")
    cluster.append(CLICKS, b"a")
    cluster.report(report(1, b"a"))
    cluster.report(report(2))  # Much later.
    assert kinds(audit(cluster)) == [FindingKind.REPEATED]
    result = audit(cluster, AuditOptions(grace_ms=2 * NOW_MS))
    assert (result.findings, result.problems) == ((), 0)
