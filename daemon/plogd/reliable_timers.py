"""Timers that do not lose any calls, even if a timer cannot be set immediately.

Setting a timer takes memory, so it can fail. Most calls must not be lost: a request waits for its
deadline, a seal for its next attempt, a queue for its next turn. If a call's timer cannot be set,
the call is therefore kept, and its timer is set at the end of the turn or together with the next
timer. Callers do not need to handle this case.
"""

from __future__ import annotations

from collections.abc import Callable

from plogd.ports import Ports, Timer


class ReliableTimers:
    """The `Timers` port, based on the timers in `ports`; errors are passed to `on_bug`."""

    __slots__ = ("_clock", "_on_bug", "_timers", "_turn", "_unset")

    def __init__(self, ports: Ports, *, on_bug: Callable[[str, Exception], None]) -> None:
        self._timers = ports.timers
        self._clock = ports.clock
        self._turn = ports.turn
        self._on_bug = on_bug
        self._unset: dict[_UnsetTimer, None] = {}

    def call_later(self, delay_ms: float, function: Callable[[], None]) -> Timer:
        """Call `function` once, `delay_ms` from now; see `Timers.call_later`."""
        if self._unset:
            self._set_again()
        try:
            return self._timers.call_later(delay_ms, function)
        except Exception as error:
            # The due time is kept instead of the delay, because it is unknown when the timer will
            # be set.
            timer = _UnsetTimer(self._unset, self._clock.monotonic_ms() + delay_ms, function)
            # Not raised to the caller, which might then give up work that this call would continue.
            self._on_bug("setting a timer", error)
            try:
                self._turn.defer(self._set_again)
            # Any later turn, or the next call, sets the timer.
            except Exception as second_error:
                self._on_bug("setting a timer at the end of the turn", second_error)
            return timer

    def _set_again(self) -> None:
        """Set the unset timers in order, up to the first timer that still cannot be set."""
        try:
            # A copy, because `set_to` removes the timer.
            for timer in list(self._unset):
                delay_ms = max(0.0, timer.due_ms - self._clock.monotonic_ms())
                timer.set_to(self._timers.call_later(delay_ms, timer.function))
        except Exception as error:
            self._on_bug("setting a timer again", error)


class _UnsetTimer:
    """A timer that could not be set immediately; it can be cancelled like any other timer."""

    __slots__ = ("_timer", "_unset", "due_ms", "function")

    def __init__(
        self,
        unset: dict[_UnsetTimer, None],
        due_ms: float,
        function: Callable[[], None],
    ) -> None:
        self.due_ms = due_ms
        self.function = function
        self._timer: Timer | None = None
        self._unset = unset
        unset[self] = None

    def set_to(self, timer: Timer) -> None:
        """Let `timer` make the call."""
        self._timer = timer
        del self._unset[self]

    def cancel(self) -> None:
        """Cancel the call; this has no effect if it has been made."""
        if self._timer is not None:
            self._timer.cancel()
        else:
            self._unset.pop(self, None)
