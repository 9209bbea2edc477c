"""The lowest and highest served version of an API, as parameters of its tests."""

from __future__ import annotations

from typing import Any

import pytest

from plog.wire.api_keys import ApiKey
from plogd.apis.api_table import HANDLERS

COVERED: set[ApiKey] = set()
"""The APIs that are compared with Kafka; test_coverage.py checks it."""


def lowest_and_highest(api_key: ApiKey, *, lowest: int | None = None) -> Any:
    """Return a decorator that runs a test with both versions as its argument `version`.

    `lowest` is for features that older versions lack.
    """
    COVERED.add(api_key)
    [row] = [row for row in HANDLERS if row.api_key == api_key]
    first = row.first_version if lowest is None else lowest
    return pytest.mark.parametrize("version", sorted({first, row.last_version}))
