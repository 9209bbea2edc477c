"""The options of an audit."""

from __future__ import annotations

import pytest

from plog.client.audit.audit_options import AuditOptions
from plog.client.errors import ConfigError


def test_topics_and_pattern_exclude_each_other() -> None:
    with pytest.raises(ConfigError, match="either topics or a pattern"):
        AuditOptions(topics=("a",), pattern="b")


def test_wrong_pattern_is_an_error() -> None:
    with pytest.raises(ConfigError, match="as a regular expression"):
        AuditOptions(pattern="(")


def test_reported_topics_are_the_default() -> None:
    assert AuditOptions().chosen(["b", "a", "other"], ["a", "b", "deleted"]) == ["a", "b"]
    assert AuditOptions(pattern="^a").chosen(["ab", "ba"], []) == ["ab"]
    assert AuditOptions(topics=("b", "a")).chosen(["a", "b"], []) == ["a", "b"]


def test_range_starts_with_a_window() -> None:
    assert AuditOptions(since_ms=119_999).first_ms == 60_000
    assert AuditOptions().first_ms is None


def test_range_must_end_after_its_start() -> None:
    with pytest.raises(ConfigError, match=r"its end is not after its start"):
        AuditOptions(since_ms=2, before_ms=1)
