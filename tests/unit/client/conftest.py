"""Fixtures that tests of the client share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.helpers.group.group_world import World
from tests.helpers.group.zookeeper_world import ZooKeeperWorld


@pytest.fixture
def make_world() -> Iterator[Callable[..., World]]:
    """Yield a function that makes a `World` of group members."""
    worlds = []

    def make(seed: int = 0, **settings: Any) -> World:
        world = World(seed, **settings)
        worlds.append(world)
        return world

    yield make
    for world in worlds:
        world.end()


@pytest.fixture
def make_zookeeper_world() -> Iterator[Callable[..., ZooKeeperWorld]]:
    """Yield a function that makes a `ZooKeeperWorld` of group members."""
    worlds = []

    def make(seed: int = 0, **settings: Any) -> ZooKeeperWorld:
        world = ZooKeeperWorld(seed, **settings)
        worlds.append(world)
        return world

    yield make
    for world in worlds:
        world.end()
