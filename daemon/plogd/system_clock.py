"""The operating system's clock and the reactor's timers, which implement plogd/ports.py.

machine.py creates both for a broker; the pure packages see only the Protocols. The timers use the
reactor that is passed in; no reactor is imported here. system_random.py implements `Random`,
os_files.py implements `Files`, and net/thread_jobs.py implements `Jobs`.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime


class SystemClock:
    """The wall clock and the monotonic clock of the operating system."""

    __slots__ = ()

    def now_ms(self) -> int:
        """Return wall-clock milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        """Return the monotonic time in milliseconds."""
        # On Linux, it does not advance while the machine is suspended, so no session expires then.
        return time.monotonic() * 1000.0


class ReactorTimer:
    """A call scheduled on the reactor; cancelling it late or twice has no effect."""

    __slots__ = ("_call",)

    def __init__(self, call: IDelayedCall) -> None:
        self._call = call

    def cancel(self) -> None:
        """Cancel the call if it has not run yet."""
        # Twisted raises an exception when a call is cancelled late or twice.
        if self._call.active():
            self._call.cancel()


class ReactorTimers:
    """Timers of `reactor`, which logs an exception in a scheduled call."""

    __slots__ = ("_reactor",)

    def __init__(self, reactor: IReactorTime) -> None:
        self._reactor = reactor

    def call_later(self, delay_ms: float, function: Callable[[], None]) -> ReactorTimer:
        """Call `function` once after `delay_ms`; 0 means after the current turn."""
        # Twisted's reactors assert that a delay is not negative.
        return ReactorTimer(self._reactor.callLater(max(0.0, delay_ms) / 1000.0, function))
