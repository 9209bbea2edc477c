"""Durations in the format of Java's Duration."""

from __future__ import annotations

import pytest

from plog.client.settings.durations import duration_ms

HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("P2D", 48 * HOUR_MS),
        ("P1DT1H1M1.5S", 25 * HOUR_MS + 61_500),
        ("pt15m", 900_000),
        ("PT0.0009S", 0),
        ("PT-1.5S", -1_500),
        ("-PT1M", -60_000),
        ("+PT1S", 1_000),
        ("PT1.S", 1_000),
    ],
)
def test_durations_are_parsed_as_in_java(text: str, expected_ms: int) -> None:
    assert duration_ms(text) == expected_ms


@pytest.mark.parametrize("text", ["", "P", "PT", "P1DT", "1h", "P1M", "P1Y", "PT1H2", "PT.5S", "7"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration like"):
        duration_ms(text)
