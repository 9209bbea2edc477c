"""The ledger: repeated, missing and late reports, and the comparison with topics."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plog.audit import (
    AuditCounts,
    AuditFinding,
    AuditLedger,
    AuditReport,
    AuditWindow,
    FindingKind,
)

FIRST, SECOND = "1" * 32, "2" * 32
WINDOW = AuditWindow("t", 60_000, "p")
LATER_MS = 300_000
"""A time at which the window has passed, including the grace period."""


def counts_of(*values: bytes, producer: str | None = "p", at_ms: int = 60_000) -> AuditCounts:
    counts = AuditCounts()
    for value in values:
        counts.add("t", at_ms, value, producer)
    return counts


def report(
    number: int = 1,
    *values: bytes,
    instance: str = FIRST,
    is_final: bool = False,
    until_ms: int | None = None,
    in_doubt: Iterable[bytes] = (),
    producer: str = "p",
) -> AuditReport:
    return AuditReport(
        producer=producer,
        instance=instance,
        number=number,
        since_ms=number * 1000,
        until_ms=number * 1000 + 1000 if until_ms is None else until_ms,
        is_final=is_final,
        counts=counts_of(*values, producer=producer),
        in_doubt=counts_of(*in_doubt, producer=producer),
    )


def ledger_of(*reports: AuditReport) -> AuditLedger:
    ledger = AuditLedger()
    for each in reports:
        ledger.add(each)
    return ledger


def kinds(ledger: AuditLedger, actual: AuditCounts) -> list[tuple[FindingKind, int]]:
    return [(finding.kind, finding.records) for finding in ledger.findings(actual)]


# -- reports --------------------------------------------------------------------------------------


@given(
    st.lists(st.lists(st.binary(max_size=3), max_size=4), min_size=1, max_size=8),
    st.integers(0, 1 << 32),
    st.data(),
)
def test_order_and_repetition_of_reports_do_not_matter(
    increments: list[list[bytes]], seed: int, data: st.DataObject
) -> None:
    reports = [report(number, *values) for number, values in enumerate(increments, 1)]
    missing = data.draw(st.sets(st.integers(1, len(reports) - 1))) if len(reports) > 1 else set()
    received = [each for each in reports if each.number not in missing]
    again = data.draw(st.lists(st.sampled_from(received), max_size=5))
    arrivals = received + again
    random.Random(seed).shuffle(arrivals)

    ledger = ledger_of(*arrivals)
    values = [value for each in received for value in increments[each.number - 1]]
    assert ledger.expected(WINDOW) == counts_of(*values)[WINDOW]
    assert ledger.repeated_reports == len(again)
    gaps = {number for gap in ledger.missing_reports() for number in range(gap.first, gap.last + 1)}
    assert gaps == missing


def test_missing_reports_are_named_with_their_time() -> None:
    [first, second] = ledger_of(report(3, b"a"), report(6, b"b")).missing_reports()
    assert (first.first, first.last, first.since_ms, first.until_ms) == (1, 2, None, 3000)
    assert (second.first, second.last, second.since_ms, second.until_ms) == (4, 5, 4000, 6000)
    assert str(second) == f"reports 4 to 5 of instance {FIRST} of producer p"


def test_late_report_fills_the_gap() -> None:
    ledger = ledger_of(report(2, b"b"))
    assert str(ledger.missing_reports()[0]) == f"report 1 of instance {FIRST} of producer p"
    ledger.add(report(1, b"a"))
    assert ledger.missing_reports() == []
    assert kinds(ledger, counts_of(b"a", b"b")) == []


def test_instances_are_numbered_separately() -> None:
    ledger = ledger_of(report(1, b"a"), report(1, b"b", instance=SECOND))
    assert ledger.repeated_reports == 0
    assert kinds(ledger, counts_of(b"a", b"b")) == []
    assert list(ledger.producers) == ["p"]


@pytest.mark.parametrize("other", [report(1, b"b", until_ms=7), report(2, b"b", producer="q")])
def test_report_that_contradicts_another_is_ignored_and_kept(other: AuditReport) -> None:
    ledger = ledger_of(report(1, b"a"))
    assert not ledger.add(other)
    assert ledger.conflicts == [other]
    assert kinds(ledger, counts_of(b"a")) == []


# -- windows --------------------------------------------------------------------------------------


def test_lost_records_are_found() -> None:
    ledger = ledger_of(report(1, b"a", b"b", is_final=True))
    assert kinds(ledger, counts_of(b"a")) == [(FindingKind.LOST, 1)]


def test_all_records_are_lost_when_topic_has_none() -> None:
    assert kinds(ledger_of(report(1, b"a")), AuditCounts()) == [(FindingKind.LOST, 1)]


def test_repeated_records_are_found_when_producer_was_closed() -> None:
    ledger = ledger_of(report(1, b"a", is_final=True))
    assert kinds(ledger, counts_of(b"a", b"a", b"a")) == [(FindingKind.REPEATED, 2)]


def test_repeated_records_are_found_when_producer_reported_after_the_window() -> None:
    ledger = ledger_of(report(1, b"a"), report(2, until_ms=LATER_MS))
    assert kinds(ledger, counts_of(b"a", b"a")) == [(FindingKind.REPEATED, 1)]


def test_one_lost_and_one_repeated_record_do_not_cancel_out() -> None:
    ledger = ledger_of(report(1, b"a", b"b", is_final=True))
    [finding] = ledger.findings(counts_of(b"a", b"a"))
    assert (finding.kind, finding.records) == (FindingKind.DIFFERENT, 0)
    assert "2 records as reported, but their values differ" in str(finding)


@pytest.mark.parametrize(
    "reports",
    [
        # The producer was killed, or it still runs.
        [report(1, b"a")],
        # The last report contains the window, so more records may follow.
        [report(1, b"a", until_ms=LATER_MS)],
        # A report is missing.
        [report(1, b"a"), report(3, is_final=True)],
        # One of the instances was killed.
        [report(1, b"a", is_final=True), report(1, instance=SECOND)],
    ],
)
def test_excess_is_unreported_when_reports_are_incomplete(reports: list[AuditReport]) -> None:
    assert kinds(ledger_of(*reports), counts_of(b"a", b"b")) == [(FindingKind.UNREPORTED, 1)]


def test_records_without_any_report_are_unreported() -> None:
    actual = counts_of(b"a", b"b", producer=None)
    actual.add_all(counts_of(b"c", producer="q"))
    found = list(ledger_of(report(1, is_final=True)).findings(actual))
    assert [(x.kind, x.window.producer, x.records) for x in found] == [
        (FindingKind.UNREPORTED, None, 2),
        (FindingKind.UNREPORTED, "q", 1),
    ]
    assert str(found[0]) == (
        "t 1970-01-01T00:01:00Z (no producer): 2 records unreported (reported 0, found 2)"
    )


@pytest.mark.parametrize("written", [[b"a"], [b"a", b"x"], [b"a", b"x", b"y"]])
def test_records_in_doubt_may_or_may_not_be_in_the_topic(written: list[bytes]) -> None:
    ledger = ledger_of(report(1, b"a", in_doubt=[b"x", b"y"], is_final=True))
    assert kinds(ledger, counts_of(*written)) == []


@pytest.mark.parametrize(
    ("written", "kind", "records"),
    [
        ([], FindingKind.LOST, 1),
        ([b"x"], FindingKind.DIFFERENT, 0),
        ([b"a", b"x", b"a"], FindingKind.DIFFERENT, 0),
        ([b"a", b"x", b"y", b"a"], FindingKind.REPEATED, 1),
    ],
)
def test_records_in_doubt_do_not_hide_other_differences(
    written: list[bytes], kind: FindingKind, records: int
) -> None:
    ledger = ledger_of(report(1, b"a", in_doubt=[b"x", b"y"], is_final=True))
    assert kinds(ledger, counts_of(*written)) == [(kind, records)]


def test_findings_are_limited_to_topics_and_time() -> None:
    ledger = ledger_of(report(1, b"a"))
    nothing = AuditCounts()
    assert list(ledger.findings(nothing, topics=["u"])) == []
    assert list(ledger.findings(nothing, since_ms=120_000)) == []
    assert list(ledger.findings(nothing, before_ms=60_000)) == []
    assert len(list(ledger.findings(nothing, topics=["t"], since_ms=60_000))) == 1


def test_finding_after_the_year_9999_shows_its_timestamp() -> None:
    window = AuditWindow("t", 1 << 60, "p")
    assert f"t {1 << 60} ms p: " in str(AuditFinding(kind=FindingKind.LOST, window=window))
