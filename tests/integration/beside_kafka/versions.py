"""The lowest and the highest version served of an API, as parameters of its tests."""

from __future__ import annotations

from typing import Any

import pytest

from plog.wire.api_keys import ApiKey
from plogd.apis.api_table import HANDLERS

COVERED: set[ApiKey] = set()
"""The APIs that have a test beside Kafka; test_all_are_here.py looks at it."""


def lowest_and_highest(api_key: ApiKey, *, lowest: int | None = None) -> Any:
    """A decorator that runs a test with both versions, as its argument `version`.

    `lowest` is for a test of something that older versions do not have.
    """
    COVERED.add(api_key)
    [row] = [row for row in HANDLERS if row.api_key == api_key]
    first = row.first_version if lowest is None else lowest
    return pytest.mark.parametrize("version", sorted({first, row.last_version}))
