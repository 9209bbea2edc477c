"""The format of audit reports."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plog.audit import (
    AuditCounts,
    AuditReport,
    AuditTotals,
    AuditWindow,
    InvalidAuditReport,
    encode_report,
    parse_report,
)

INSTANCE = "0123456789abcdef" * 2
NUMBERS = st.integers(0, (1 << 63) - 1)
TOTALS = st.builds(
    AuditTotals,
    records=st.integers(1, (1 << 63) - 1),
    value_bytes=NUMBERS,
    crc32_sum=st.integers(0, (1 << 64) - 1),
)


def report_of(**changes: Any) -> AuditReport:
    counts = AuditCounts()
    counts.add("clicks", 61_000, b"a", "web-1")
    fields: dict[str, Any] = {
        "producer": "web-1",
        "instance": INSTANCE,
        "number": 1,
        "since_ms": 5,
        "until_ms": 6,
        "counts": counts,
    }
    return AuditReport(**(fields | changes))


def contents(report: AuditReport) -> tuple[object, ...]:
    head = (report.producer, report.instance, report.number, report.since_ms, report.until_ms)
    return (*head, report.is_final, dict(report.counts.items()), dict(report.in_doubt.items()))


def changed(**changes: Any) -> bytes:
    return json.dumps(json.loads(encode_report(report_of())) | changes).encode()


def entry(**changes: Any) -> dict[str, Any]:
    return {"topic": "t", "window_ms": 0, "records": 1, "bytes": 2, "crc32_sum": "3"} | changes


@given(
    st.text(min_size=1),
    st.integers(1, (1 << 63) - 1),
    st.dictionaries(st.tuples(st.text(min_size=1), st.integers(0, 1 << 40)), TOTALS, max_size=5),
    st.booleans(),
)
def test_report_round_trips(
    producer: str, number: int, windows: dict[tuple[str, int], AuditTotals], is_final: bool
) -> None:
    counts = AuditCounts()
    for (topic, minute), totals in windows.items():
        counts.add_totals(AuditWindow(topic, minute * 60_000, producer), totals)
    report = report_of(
        producer=producer, number=number, counts=AuditCounts(), in_doubt=counts, is_final=is_final
    )
    assert contents(parse_report(encode_report(report))) == contents(report)


def test_report_is_the_documented_json() -> None:
    assert json.loads(encode_report(report_of(is_final=True))) == {
        "version": 1,
        "producer": "web-1",
        "instance": INSTANCE,
        "number": 1,
        "since_ms": 5,
        "until_ms": 6,
        "final": True,
        "counts": [
            {
                "topic": "clicks",
                "window_ms": 60_000,
                "records": 1,
                "bytes": 1,
                "crc32_sum": "3904355907",
            }
        ],
        "in_doubt": [],
    }


def test_key_is_the_instance() -> None:
    assert report_of().key == INSTANCE.encode()


def test_unknown_fields_are_ignored() -> None:
    assert contents(parse_report(changed(more=1))) == contents(report_of())


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (None, "its value is null"),
        (b"{", "its value is not JSON"),
        (b"\xff", "its value is not JSON"),
        (b"[" * 100_000, "its value is not JSON"),
        (b"[]", "its value is not a JSON object"),
        (b"{}", "version is missing"),
        (changed(version=2), "version 2 is not supported; use a newer plog"),
        (changed(version=True), "version is True, not an integer from 1"),
        (changed(producer=""), "producer is '', not a non-empty string"),
        (changed(instance="A" * 32), "not 32 lower-case hexadecimal digits"),
        (changed(number=0), "number is 0, not an integer from 1"),
        (changed(until_ms=1 << 63), r"until_ms is 9223372036854775808, not an integer"),
        (changed(since_ms=1.5), "since_ms is 1.5, not an integer"),
        (changed(final=1), "final is 1, not true or false"),
        (changed(counts={}), "counts is not an array"),
        (changed(counts=[1]), "counts contains 1, not an object"),
        (changed(in_doubt=[entry(window_ms=1)]), "window_ms is 1, not a multiple of 60000"),
        (changed(counts=[entry(), entry()]), "counts contains t at 0 twice"),
        (changed(counts=[entry(records=0)]), "records is 0, not an integer from 1"),
        (changed(counts=[entry(bytes=-1)]), "bytes is -1, not an integer from 0"),
        (changed(counts=[entry(crc32_sum=3)]), "crc32_sum is 3, not a string"),
        (changed(counts=[entry(crc32_sum=str(1 << 64))]), "not a string with an integer below"),
        (changed(counts=[entry(crc32_sum="٣")]), "not a string with an integer below"),
        (changed(counts=[entry(topic=None)]), "topic is None, not a non-empty string"),
    ],
)
def test_invalid_report_is_refused_with_reason(value: bytes | None, why: str) -> None:
    with pytest.raises(InvalidAuditReport, match="invalid audit report: ") as caught:
        parse_report(value)
    assert why in str(caught.value)
