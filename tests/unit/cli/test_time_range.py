"""plog/cli/time_range.py: times and dates."""

from __future__ import annotations

import argparse

import pytest

from plog.cli.time_range import add_time_range_options, time_ms

NOON_MS = 1_767_268_800_000


def test_date_is_its_start_in_utc() -> None:
    assert time_ms("2026-01-01") == time_ms("20260101") == NOON_MS - 12 * 3_600_000
    assert time_ms("2026-01-01T12:00") == time_ms("2026-01-01T14:00:00+02:00") == NOON_MS


@pytest.mark.parametrize("ms", [0, 7, 1_767_268_800, NOON_MS])
def test_other_digits_are_milliseconds(ms: int) -> None:
    assert time_ms(str(ms)) == ms


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "20261301", "-1"])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=f"'{text}' is neither a time"):
        time_ms(text)


def test_default_is_at_the_end_of_the_help() -> None:
    parser = argparse.ArgumentParser()
    add_time_range_options(parser, "its start", "its end", ("the first record", "now"))
    text = " ".join(parser.format_help().split())
    assert "T12:00, in UTC unless it has an offset (default: the first record)" in text
    assert "its end, such as 2026-01-31 or" in text
