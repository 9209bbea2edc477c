"""LoopReactor: timers of the asyncio loop behave as Twisted's delayed calls."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from twisted.internet.error import AlreadyCalled, AlreadyCancelled
from twisted.internet.interfaces import IDelayedCall
from zope.interface.verify import verifyObject

from plog.client.network.loop_reactor import LoopReactor


def on_a_loop(scenario: Callable[[Any], Awaitable[None]]) -> None:
    """Run `scenario` with the reactor of a new loop."""

    async def run() -> None:
        of_loop = LoopReactor.acquire()
        try:
            await scenario(of_loop.reactor)
        finally:
            await of_loop.release()

    asyncio.run(run())


def test_delayed_call_passes_its_arguments() -> None:
    async def scenario(reactor: Any) -> None:
        came: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        call = reactor.callLater(0.001, lambda *a, **k: came.set_result((a, k)), 1, two=2)
        assert verifyObject(IDelayedCall, call) and call.active()
        assert reactor.getDelayedCalls() == [call]
        assert await came == ((1,), {"two": 2})
        assert not call.active() and reactor.getDelayedCalls() == []
        for touch in (call.cancel, lambda: call.reset(1), lambda: call.delay(1)):
            with pytest.raises(AlreadyCalled):
                touch()

    on_a_loop(scenario)


def test_cancelled_delayed_call_does_not_run() -> None:
    async def scenario(reactor: Any) -> None:
        made: list[str] = []
        call = reactor.callLater(0, made.append, "cancelled")
        call.cancel()
        came = asyncio.Event()
        reactor.callLater(0, came.set)
        await came.wait()
        assert made == [] and not call.active()
        with pytest.raises(AlreadyCancelled):
            call.cancel()

    on_a_loop(scenario)


def test_delayed_call_can_be_rescheduled() -> None:
    async def scenario(reactor: Any) -> None:
        came: asyncio.Queue[str] = asyncio.Queue()
        late = reactor.callLater(3600, came.put_nowait, "was an hour away")
        at_s = late.getTime()
        late.delay(60)
        assert late.getTime() == at_s + 60 > reactor.seconds() + 3600
        late.reset(0)
        assert await came.get() == "was an hour away"

    on_a_loop(scenario)


def test_release_by_the_last_client_cancels_all_timers() -> None:
    made: list[str] = []

    async def scenario(reactor: Any) -> None:
        reactor.callLater(0.001, made.append, "after the end")

    async def run() -> None:
        of_loop = LoopReactor.acquire()
        await scenario(of_loop.reactor)
        await of_loop.release()
        assert of_loop.reactor.getDelayedCalls() == []

    asyncio.run(run())
    assert made == []


def test_delayed_calls_create_no_reference_cycles() -> None:
    async def scenario(reactor: Any) -> None:
        gc.collect()
        for _ in range(10):
            came = asyncio.Event()
            reactor.callLater(0, came.set)
            reactor.callLater(60, came.set).cancel()
            await came.wait()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            gc.collect()
            assert [thing for thing in gc.garbage if "LoopCall" in repr(type(thing))] == []
        finally:
            gc.set_debug(0)
            gc.garbage.clear()

    on_a_loop(scenario)
