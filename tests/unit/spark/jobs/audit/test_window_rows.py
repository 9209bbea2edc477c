"""The totals of Spark become the same counts as those of producers."""

from __future__ import annotations

from zlib import crc32

from hypothesis import given
from hypothesis import strategies as st

from plog.audit import AuditCounts, AuditTotals, AuditWindow
from plog.spark.jobs.audit.window_rows import WindowRow, counts_of


@given(st.lists(st.binary(max_size=8), min_size=1, max_size=9))
def test_halves_of_checksums_add_up_to_the_sum(values: list[bytes]) -> None:
    sums = [crc32(value) for value in values]
    row = WindowRow(
        "t",
        0,
        b"p",
        len(values),
        sum(map(len, values)),
        sum(one >> 16 for one in sums),
        sum(one & 0xFFFF for one in sums),
    )
    assert counts_of([row])[AuditWindow("t", 0, "p")] == AuditTotals.of(values)


def test_sum_is_that_of_unsigned_64_bits() -> None:
    many = 1 << 40
    row = WindowRow("t", 0, None, many, 0, many * 0xFFFF, many * 0xFFFF)
    assert counts_of([row])[AuditWindow("t", 0, None)].crc32_sum == many * (2**32 - 1) % 2**64


def test_names_that_are_not_utf_8_are_replaced_as_producers_are_read() -> None:
    rows = [WindowRow("t", 0, name, 1, 0, 0, 0) for name in (b"\xff", b"\xfe", None)]
    counts: AuditCounts = counts_of(rows)
    assert counts[AuditWindow("t", 0, "\ufffd")].records == 2
    assert counts[AuditWindow("t", 0, None)].records == 1
