"""The comparison of a whole audit: findings, unreported records and summaries."""

from __future__ import annotations

from plog.audit import AuditCounts, AuditLedger, AuditReport, AuditWindow, FindingKind
from plog.audit.bounds import AuditBounds
from plog.audit.result import AuditResult, TopicSummary, compare

MINUTE_MS = 60_000
CLOSED = AuditBounds(recent_ms=100 * MINUTE_MS)


def counts_of(*records: tuple[int, bytes, str | None], topic: str = "t") -> AuditCounts:
    counts = AuditCounts()
    for minute, value, producer in records:
        counts.add(topic, minute * MINUTE_MS, value, producer)
    return counts


def ledger_of(*records: tuple[int, bytes, str | None], is_final: bool = True) -> AuditLedger:
    ledger = AuditLedger()
    report = AuditReport(
        producer="p",
        instance="1" * 32,
        number=1,
        since_ms=0,
        until_ms=1,
        is_final=is_final,
        counts=counts_of(*records),
    )
    ledger.add(report)
    return ledger


def result_of(ledger: AuditLedger, actual: AuditCounts, bounds: AuditBounds) -> AuditResult:
    return compare(ledger, actual, ["t", "empty"], bounds)


def test_topics_are_summed_up_and_other_topics_ignored() -> None:
    actual = counts_of((1, b"a", "p"), (2, b"b", "p"))
    actual.add_all(counts_of((1, b"a", "p"), topic="other"))
    result = result_of(ledger_of((1, b"a", "p"), (2, b"b", "p")), actual, CLOSED)
    assert result.problems == 0
    assert result.topics == {
        "t": TopicSummary(windows=2, reported=2, found=2),
        "empty": TopicSummary(),
    }


def test_loss_and_repetition_are_found_in_their_windows() -> None:
    ledger = ledger_of((1, b"a", "p"), (2, b"b", "p"), (3, b"c", "p"), (3, b"d", "p"))
    actual = counts_of((2, b"b", "p"), (2, b"b", "p"), (3, b"c", "p"), (3, b"c", "p"))
    result = result_of(ledger, actual, CLOSED)
    assert [(one.kind, one.window.window_ms // MINUTE_MS) for one in result.findings] == [
        (FindingKind.LOST, 1),
        (FindingKind.REPEATED, 2),
        (FindingKind.DIFFERENT, 3),
    ]
    assert result.problems == 3


def test_repeated_record_in_a_recent_window_may_be_that_of_another_producer() -> None:
    ledger = ledger_of((2, b"b", "p"))
    actual = counts_of((2, b"b", "p"), (2, b"b", "p"))
    result = result_of(ledger, actual, AuditBounds(recent_ms=2 * MINUTE_MS))
    assert (result.findings, result.pending) == ((), 1)


def test_reason_for_unreported_records_is_the_state_of_their_producer() -> None:
    ledger = ledger_of((1, b"a", "p"), is_final=False)
    actual = counts_of((1, b"a", "p"), (1, b"b", "p"), (1, b"c", "q"), (1, b"d", None))
    reasons = [one.reason for one in result_of(ledger, actual, CLOSED).unreported]
    assert reasons[0].startswith("they have no header plog.audit")
    assert reasons[1].startswith("this producer was killed, or has not reported")
    assert reasons[2].startswith("this producer has never reported")


def test_reports_that_end_before_the_range_are_not_missed() -> None:
    ledger = AuditLedger()
    for number, until_ms in ((2, 10), (4, 30)):
        ledger.add(
            AuditReport(
                producer="p",
                instance="1" * 32,
                number=number,
                since_ms=until_ms - 5,
                until_ms=until_ms,
            )
        )
    bounds = AuditBounds(since_ms=20, recent_ms=0)
    missing = result_of(ledger, AuditCounts(), bounds).missing_reports
    assert [gap.first for gap in missing] == [3]
    bounds = AuditBounds(reports_retained_ms=0, recent_ms=0)
    missing = result_of(ledger, AuditCounts(), bounds).missing_reports
    assert [gap.first for gap in missing] == [3]


def test_report_that_contradicts_another_one_is_a_problem() -> None:
    ledger = ledger_of((1, b"a", "p"))
    ledger.add(AuditReport(producer="q", instance="1" * 32, number=1, since_ms=0, until_ms=2))
    [reason] = result_of(ledger, counts_of((1, b"a", "p")), CLOSED).invalid_reports
    assert (
        reason == f"report 1 of instance {'1' * 32} of producer q contradicts another report"
        " with this number"
    )


def test_late_report_excuses_records_but_not_missing_ones() -> None:
    ledger = ledger_of((1, b"a", "p"))
    late = AuditReport(
        producer="p",
        instance="1" * 32,
        number=2,
        since_ms=1,
        until_ms=2,
        counts=counts_of((1, b"b", "p")),
    )
    assert ledger.add(late, is_late=True)
    window = AuditWindow("t", MINUTE_MS, "p")
    assert ledger.expected(window).records == 1
    for values, kinds in (
        ([b"a"], []),
        ([b"a", b"b"], []),
        ([], [FindingKind.LOST]),
        ([b"b"], [FindingKind.DIFFERENT]),
    ):
        actual = counts_of(*((1, value, "p") for value in values))
        assert [one.kind for one in result_of(ledger, actual, CLOSED).findings] == kinds
