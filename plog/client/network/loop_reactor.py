"""A Twisted reactor on a running asyncio loop, for the asyncio face. It is never installed.

The engine runs in the loop's own thread, and Deferreds fire in callbacks of the loop. All clients
in a loop share one reactor, which closes when the last client closes.
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
    """A delayed call that the loop's timers schedule."""

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
        """The exception for changing the call after it was made or cancelled; None until then."""
        pending.add(self)
        self._time_s = loop.time() + delay_s
        self._handle: asyncio.Handle
        # Without a delay, `call_soon` costs less than a timer.
        self._handle = loop.call_later(delay_s, self._run) if delay_s else loop.call_soon(self._run)

    def _run(self) -> None:
        self._end(AlreadyCalled)
        self._call()

    def _end(self, how: type[Exception]) -> None:
        self._is_over = how
        self._pending.discard(self)
        # This breaks the reference cycle, which saves work for the garbage collector.
        del self._handle

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


# Twisted's own reactor keeps a heap of timers in addition to the loop's heap. Each request has one
# or two timers, so updating both heaps would slow down every record.
class _Reactor(AsyncioSelectorReactor):
    """Twisted's asyncio reactor, but with the loop's clock and timers."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pending: set[_LoopCall] = set()
        super().__init__(loop)

    def seconds(self) -> float:
        return self._loop.time()

    def callLater(
        self, delay: float, callable: Callable[..., object], *args: object, **kw: object
    ) -> Any:  # Twisted declares DelayedCall, but needs only an IDelayedCall.
        call = partial(callable, *args, **kw) if args or kw else callable
        return _LoopCall(self._loop, self._pending, delay, call)

    def getDelayedCalls(self) -> list[_LoopCall]:
        return list(self._pending)


class LoopReactor:
    """The reactor of one loop. Each client calls `acquire` and, when it closes, `release`."""

    _by_loop: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LoopReactor] = (
        weakref.WeakKeyDictionary()
    )

    @classmethod
    def acquire(cls) -> LoopReactor:
        """Return the reactor of the running loop. Raises RuntimeError if no loop is running."""
        loop = asyncio.get_running_loop()
        found = cls._by_loop.get(loop)
        if found is None:
            found = cls._by_loop[loop] = cls(loop)
        found._clients += 1
        return found

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.reactor: Any = _Reactor(loop)
        self._clients = 0
        # The loop is the weak key of the table that contains this object. A strong reference here
        # would keep the loop alive forever.
        self._loop = weakref.ref(loop)

    async def release(self) -> None:
        """Unregister a client; after the last one, close the reactor."""
        self._clients -= 1
        if self._clients:
            return
        loop = self._loop()
        if loop is not None:
            # Remove the reactor before the first wait: a client that is created in the meantime
            # must get a new reactor.
            self._by_loop.pop(loop, None)
        # Aborted connections report their end in the next two iterations of the loop.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        reactor = self.reactor
        # A timer that fired later would use a closed reactor.
        for call in reactor.getDelayedCalls():
            call.cancel()
        reactor.removeAll()
        waker = reactor.waker
        if waker is not None:
            reactor.removeReader(waker)
            # Otherwise, the waker's sockets would stay open.
            waker.connectionLost(None)
