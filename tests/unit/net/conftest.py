"""Fixtures of the tests of plogd/net."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from twisted.logger import globalLogPublisher

from tests.helpers.net_parts import LogLines


@pytest.fixture
def log_lines() -> Iterator[LogLines]:
    """What was logged at "warn" or above, a text an event."""
    lines = LogLines()
    globalLogPublisher.addObserver(lines)
    yield lines
    globalLogPublisher.removeObserver(lines)
