"""A reactor on a running asyncio loop, without being installed: Twisted's part of the asyncio face.

Everything then happens in the loop's own thread, and a Deferred's end is a callback of the loop.
All clients of a loop share one; when the last of them is closed it lets go of the loop.
"""

from __future__ import annotations

import asyncio
import weakref
from typing import Any

from twisted.internet.asyncioreactor import AsyncioSelectorReactor


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
        self.reactor: Any = AsyncioSelectorReactor(loop)
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
