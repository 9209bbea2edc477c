"""The machine's own clock, timers and chance, as plogd/ports.py asks for them.

service.py makes one of each; the pure rooms see only the Protocols. The timers belong to the
reactor that is passed in; none is imported here. `Jobs` are in thread_jobs.py, `Files` in
os_files.py.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime


class SystemClock:
    """The wall clock and the monotonic clock of this machine."""

    __slots__ = ()

    def now_ms(self) -> int:
        """Wall-clock milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        """Milliseconds of a clock nobody can set."""
        return time.monotonic() * 1000.0


class ReactorTimer:
    """A call the reactor will make; cancelling it late or twice does no harm."""

    __slots__ = ("_call",)

    def __init__(self, call: IDelayedCall) -> None:
        self._call = call

    def cancel(self) -> None:
        """Do not call."""
        if self._call.active():
            self._call.cancel()


class ReactorTimers:
    """Calls in the future, made by `reactor`; an exception in one is logged by the reactor."""

    __slots__ = ("_reactor",)

    def __init__(self, reactor: IReactorTime) -> None:
        self._reactor = reactor

    def call_later(self, delay_ms: float, function: Callable[[], None]) -> ReactorTimer:
        """Call `function` once, `delay_ms` from now; 0 means after the current turn."""
        return ReactorTimer(self._reactor.callLater(max(0.0, delay_ms) / 1000.0, function))


class SystemRandom:
    """Chance from the operating system."""

    __slots__ = ("_random",)

    def __init__(self) -> None:
        self._random = random.SystemRandom()

    def random_bytes(self, length: int) -> bytes:
        """`length` unpredictable bytes."""
        return os.urandom(length)

    def randrange(self, stop: int) -> int:
        """An int in [0, stop)."""
        return self._random.randrange(stop)
