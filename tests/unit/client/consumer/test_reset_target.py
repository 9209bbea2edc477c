"""The timestamp that each reset sends to the leader."""

from __future__ import annotations

import pytest

from plog.client.consumer.reset_target import EARLIEST, LATEST, ResetTo, reset_to
from plog.client.settings.consumer import parse_offset_reset


@pytest.mark.parametrize(
    ("text", "timestamp"),
    [("earliest", -2), ("latest", -1), ("by_duration:PT1M", 940_000), ("by_duration:P1D", 0)],
)
def test_each_policy_has_its_timestamp(text: str, timestamp: int) -> None:
    reset = reset_to(parse_offset_reset(text))
    assert reset is not None
    assert reset.timestamp_at(1_000_000) == timestamp


def test_none_has_no_reset() -> None:
    assert reset_to(parse_offset_reset("none")) is None


def test_reset_describes_its_target() -> None:
    assert str(EARLIEST) == "the earliest offset"
    assert str(LATEST) == "the latest offset"
    assert "12" in str(ResetTo(12))
    assert "60000 ms" in str(ResetTo(0, age_ms=60_000))
