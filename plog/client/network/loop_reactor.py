"""A reactor on a running asyncio loop, without being installed: Twisted's part of the asyncio face.

Everything then happens in the loop's own thread, and a Deferred's end is a callback of the loop.
All clients of a loop share one; when the last of them is closed it lets go of the loop.

Its timers are the loop's own. Twisted would keep a heap of them above the loop's heap, and each
request has a timer or two: both heaps would be worked while an application waits for its record.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

from twisted.internet.asyncioreactor import AsyncioSelectorReactor
from twisted.internet.error import AlreadyCalled, AlreadyCancelled
from twisted.internet.interfaces import IDelayedCall
from zope.interface import implementer


@implementer(IDelayedCall)
class _LoopCall:
    """A call that the loop will make."""

    __slots__ = ("_call", "_handle", "_is_over", "_loop", "_pending", "_time_s")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        pending: set[_LoopCall],
        delay_s: float,
        call: Callable[[], object],
    ) -> None:
        self._loop = loop
        self._pending = pending
        self._call = call
        self._is_over: type[Exception] | None = None
        """What is raised for touching it, once it was made or is not to be made."""
        pending.add(self)
        self._time_s = loop.time() + delay_s
        self._handle: asyncio.Handle
        self._handle = loop.call_later(delay_s, self._run) if delay_s else loop.call_soon(self._run)

    def _run(self) -> None:
        self._end(AlreadyCalled)
        self._call()

    def _end(self, how: type[Exception]) -> None:
        self._is_over = how
        self._pending.discard(self)
        del self._handle  # Which knows this one: nothing is left to the collector.

    def active(self) -> bool:
        return self._is_over is None

    def getTime(self) -> float:
        return self._time_s

    def cancel(self) -> None:
        self._raise_if_over()
        self._handle.cancel()
        self._end(AlreadyCancelled)

    def reset(self, secondsFromNow: float) -> None:
        self._move_to(self._loop.time() + secondsFromNow)

    def delay(self, secondsLater: float) -> None:
        self._move_to(self._time_s + secondsLater)

    def _move_to(self, time_s: float) -> None:
        self._raise_if_over()
        self._handle.cancel()
        self._time_s = time_s
        self._handle = self._loop.call_at(time_s, self._run)

    def _raise_if_over(self) -> None:
        if self._is_over is not None:
            raise self._is_over


class _Reactor(AsyncioSelectorReactor):
    """Twisted's, with the loop's clock and timers."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pending: set[_LoopCall] = set()
        super().__init__(loop)

    def seconds(self) -> float:
        return self._loop.time()

    def callLater(
        self, delay: float, callable: Callable[..., object], *args: object, **kw: object
    ) -> Any:  # An IDelayedCall; Twisted's own says that it is a DelayedCall, and needs no more.
        call = partial(callable, *args, **kw) if args or kw else callable
        return _LoopCall(self._loop, self._pending, delay, call)

    def getDelayedCalls(self) -> list[_LoopCall]:
        return list(self._pending)


class LoopReactor:
    """See the module's text. Inside the loop: `acquire` once a client, `release` at its end."""

    _by_loop: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LoopReactor] = (
        weakref.WeakKeyDictionary()
    )

    @classmethod
    def acquire(cls) -> LoopReactor:
        """The running loop's. Raises RuntimeError where no loop runs."""
        loop = asyncio.get_running_loop()
        found = cls._by_loop.get(loop)
        if found is None:
            found = cls._by_loop[loop] = cls(loop)
        found._clients += 1
        return found

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.reactor: Any = _Reactor(loop)
        self._clients = 0
        # Not the loop itself, which is the key of the table that holds this.
        self._loop = weakref.ref(loop)

    async def release(self) -> None:
        """One client less. The last one closes what is left, once the aborted connections are."""
        self._clients -= 1
        if self._clients:
            return
        loop = self._loop()
        if loop is not None:
            self._by_loop.pop(loop, None)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        reactor = self.reactor
        for call in reactor.getDelayedCalls():
            call.cancel()
        reactor.removeAll()
        waker = reactor.waker
        if waker is not None:
            reactor.removeReader(waker)
            waker.connectionLost(None)
