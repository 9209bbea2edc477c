"""A bound on what takes long."""

from __future__ import annotations

import pytest

from plog.client.network import Cancelled
from plog.client.time_limit import within
from plog.errors import RequestTimedOut
from tests.helpers.sim_network import SimNetwork


@pytest.fixture
def sim() -> SimNetwork:
    return SimNetwork()


def test_what_ends_in_time_is_as_if_there_were_no_bound(sim: SimNetwork) -> None:
    async def quick() -> int:
        await sim.sleep(1)
        return 3

    async def fails() -> int:
        raise ValueError("x")

    assert sim.run(within(sim, quick(), 2, "it")) == 3
    with pytest.raises(ValueError, match="x"):
        sim.run(within(sim, fails(), 2, "it"))


def test_what_does_not_is_cancelled(sim: SimNetwork) -> None:
    told: list[str] = []

    async def slow() -> None:
        try:
            await sim.sleep(100)
        except Cancelled:
            told.append("cancelled")
            raise

    with pytest.raises(RequestTimedOut, match="it: not within 2 s"):
        sim.run(within(sim, slow(), 2, "it"))
    assert told == ["cancelled"]


def test_who_is_cancelled_cancels_it(sim: SimNetwork) -> None:
    told: list[str] = []

    async def slow() -> None:
        try:
            await sim.sleep(100)
        except Cancelled:
            told.append("cancelled")
            raise

    sim.spawn(within(sim, slow(), 50, "it"), "test").cancel()
    assert told == ["cancelled"]
