"""Tasks and signals as Deferreds: wakeups and cancellations during other wakeups."""

from __future__ import annotations

import pytest
from twisted.internet.task import Clock

from plog.client.network.ports import Cancelled, Task
from plog.client.network.twisted_network import DeferredNetwork


@pytest.fixture
def network(clock: Clock) -> DeferredNetwork:
    return DeferredNetwork(clock)  # type: ignore[arg-type]


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_woken_task_may_cancel_another_woken_task(network: DeferredNetwork) -> None:
    signal, seen, tasks = network.signal(), [], []

    async def first() -> None:
        await signal.wait()
        tasks[0].cancel()
        seen.append("first continued")

    async def second() -> None:
        try:
            await signal.wait()
        except Cancelled:
            seen.append("second was cancelled")

    task = network.spawn(first(), "the first")
    tasks.append(network.spawn(second(), "the second"))
    signal.set()
    assert seen == ["second was cancelled", "first continued"]
    assert task.done
    assert tasks[0].done


def test_task_that_cancels_itself_ends_at_its_next_await(
    network: DeferredNetwork, clock: Clock
) -> None:
    begun, seen = network.signal(), []
    tasks: list[Task] = []

    async def run() -> None:
        await begun.wait()
        tasks[0].cancel()
        seen.append("went on")
        await network.sleep(60)
        seen.append("never")

    tasks.append(network.spawn(run(), "one"))
    begun.set()
    assert not tasks[0].done
    clock.advance(0)
    assert tasks[0].done
    clock.advance(120)
    assert seen == ["went on"]
