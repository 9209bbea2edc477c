"""plog/cli/spark/jobs/time_range.py: times and dates."""

from __future__ import annotations

import argparse

import pytest

from plog.cli.spark.jobs.time_range import time_ms

NOON_MS = 1_767_268_800_000


def test_date_is_its_start_in_utc() -> None:
    assert time_ms("2026-01-01") == NOON_MS - 12 * 3_600_000
    assert time_ms("2026-01-01T12:00") == time_ms("2026-01-01T14:00:00+02:00") == NOON_MS


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "2026-01-01 12:00", "1767268800"])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=f"'{text}' is not a time like"):
        time_ms(text)
