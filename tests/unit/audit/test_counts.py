"""Counts of records per topic, time window and producer."""

from __future__ import annotations

from zlib import crc32

from hypothesis import given
from hypothesis import strategies as st

from plog.audit import WINDOW_MS, AuditCounts, AuditTotals, AuditWindow, producer_of
from plog.audit.counts import CHECKSUM_MODULUS

VALUES = st.none() | st.binary(max_size=20)
RECORDS = st.lists(st.tuples(st.integers(0, 5 * WINDOW_MS), VALUES), max_size=30)


def counted(records: list[tuple[int, bytes | None]], producer: str | None = "p") -> AuditCounts:
    counts = AuditCounts()
    for timestamp_ms, value in records:
        counts.add("t", timestamp_ms, value, producer)
    return counts


@given(RECORDS)
def test_totals_are_those_of_each_window(records: list[tuple[int, bytes | None]]) -> None:
    for window, totals in counted(records).items():
        assert window.window_ms % WINDOW_MS == 0
        values = [
            value or b""
            for timestamp_ms, value in records
            if window.window_ms <= timestamp_ms < window.window_ms + WINDOW_MS
        ]
        assert totals.records == len(values)
        assert totals.value_bytes == sum(len(value) for value in values)
        assert totals.crc32_sum == sum(crc32(value) for value in values)


@given(RECORDS)
def test_batch_counts_like_its_records(records: list[tuple[int, bytes | None]]) -> None:
    counts = AuditCounts()
    counts.add_batch("t", [x for x, _ in records], [x for _, x in records], "p")
    assert dict(counts.items()) == dict(counted(records).items())


@given(RECORDS, RECORDS)
def test_sum_of_counts_does_not_depend_on_order(
    some: list[tuple[int, bytes | None]], others: list[tuple[int, bytes | None]]
) -> None:
    one, other = counted(some), counted(others)
    one.add_all(counted(others))
    other.add_all(counted(some))
    assert dict(one.items()) == dict(other.items()) == dict(counted(some + others).items())


@given(RECORDS, st.integers(1, 3))
def test_taken_parts_add_up_to_all_counts(
    records: list[tuple[int, bytes | None]], limit: int
) -> None:
    rest, total = counted(records), AuditCounts()
    while rest:
        part = rest.take(limit)
        assert 0 < len(part) <= limit
        total.add_all(part)
    assert dict(total.items()) == dict(counted(records).items())


def test_checksum_wraps_at_64_bits() -> None:
    largest = AuditTotals(records=1, value_bytes=1, crc32_sum=CHECKSUM_MODULUS - 1)
    assert (largest + AuditTotals.of([b"a"])).crc32_sum == crc32(b"a") - 1


def test_one_lost_and_one_repeated_record_change_the_checksum() -> None:
    assert AuditTotals.of([b"a", b"b"]) != AuditTotals.of([b"a", b"a"])


def test_missing_window_has_no_records() -> None:
    assert AuditCounts()[AuditWindow("t", 0, None)] == AuditTotals()


def test_empty_batch_adds_no_window() -> None:
    counts = AuditCounts()
    counts.add_batch("t", [], [], "p")
    assert len(counts) == 0


def test_producer_is_that_of_last_header() -> None:
    headers = [("plog.audit", b"first"), ("x", b"1"), ("plog.audit", b"last")]
    assert producer_of(headers) == "last"


def test_producer_is_none_without_header_or_value() -> None:
    assert producer_of([("x", b"1")]) is None
    assert producer_of([("plog.audit", None)]) is None


def test_invalid_utf_8_in_header_is_replaced() -> None:
    assert producer_of([("plog.audit", b"a\xff")]) == "a\N{REPLACEMENT CHARACTER}"
