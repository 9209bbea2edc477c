"""Fixtures for the tests of plogd/net."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from twisted.logger import globalLogPublisher

from tests.helpers.net_parts import LogLines


@pytest.fixture
def log_lines() -> Iterator[LogLines]:
    """Return the events logged at level "warn" or above, each as one text."""
    lines = LogLines()
    globalLogPublisher.addObserver(lines)
    yield lines
    globalLogPublisher.removeObserver(lines)
