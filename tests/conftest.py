"""Load the fixtures of plogd.testing from this tree, even if plog is not installed."""

import pytest
from hypothesis import settings

pytest_plugins = ["plogd.testing.plugin", "pytester"]

_LONG_TIMEOUT_S = 1800

# By default hypothesis fails a test whose example takes 200 ms, which happens on a busy machine.
settings.register_profile("plog", deadline=None)
settings.load_profile("plog")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests marked `long` a longer timeout than that in setup.cfg."""
    for item in items:
        if item.get_closest_marker("long"):
            item.add_marker(pytest.mark.timeout(_LONG_TIMEOUT_S))
