"""Loads the fixtures of plogd.testing from this tree, also where plog is not installed."""

import pytest

pytest_plugins = ["plogd.testing.plugin", "pytester"]

_LONG_TIMEOUT_S = 1800


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked `long` may take longer than the timeout in setup.cfg."""
    for item in items:
        if item.get_closest_marker("long"):
            item.add_marker(pytest.mark.timeout(_LONG_TIMEOUT_S))
