"""Fixtures for tests of the admin client against a simulated broker in the same process."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from plog.client.admin.core import AdminCore
from plog.client.network.cluster import Cluster
from plog.client.settings import AdminSettings
from tests.helpers.client.client_on_sim_network import SimNetwork

T = TypeVar("T")


class Site:
    """A simulated broker, `sim`, and an admin client connected to it, `admin`."""

    def __init__(self, **settings: Any) -> None:
        self.sim = SimNetwork(**settings)
        settings_of_client = AdminSettings(bootstrap_servers=self.sim.bootstrap_servers)
        self.admin = AdminCore(Cluster(self.sim, settings_of_client))

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run `coroutine` and return its result."""
        return self.sim.run(coroutine)


@pytest.fixture
def site() -> Site:
    """Return a site with default settings."""
    return Site()
