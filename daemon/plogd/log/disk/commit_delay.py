"""How long a sync round waits for company: for those whom the last round has answered.

Whoever has several requests in flight would be cut in two by rounds that begin at once: some of its
requests in the round under way, the others in the next, and so on for ever, each waiting for two
syncs. So when a round ends, as many are expected as it has answered and as wait already. If they
are not all here, the next one waits: until they are, or until nobody has come for a millisecond,
which is the least a reactor's timer can wait. Looking again and again instead of sleeping would
keep the processor from a client on the same machine. It also begins when the wait has become longer
than so many requests explain: then it is others who come.

Some do not come back so soon: they are far away, or had but one thing to say. So a wait in vain is
followed by rounds that do not wait: 1, then 3, 7, 15, ..., and half as many after each wait that
was not. A single request in flight never waits, nor does a round behind one that answered only one.
"""

from __future__ import annotations

from collections.abc import Callable

from plogd.ports import Clock, Timer, Timers

_GAP_MS = 1.0
"""How long nobody may come, and how soon after another a round begins for which this is of use."""
_FIRST_MS = 0.2
"""How long it takes until the first one is back, and all of them, for each of them more."""
_EACH_MS = 0.03
_FIRST_REFUSALS = 15
_MOST_REFUSALS = 255


class CommitDelay:
    """Counts who asks for the next round; `go_on` is called when a wait is over."""

    def __init__(self, clock: Clock, timers: Timers, go_on: Callable[[], None]) -> None:
        self._clock = clock
        self._timers = timers
        self._go_on = go_on
        self._asked = self._asked_before = 0
        """How often the next round was asked for, and the last one."""
        self._expected = 0
        self._answered_ms = float("-inf")
        self._patience: Timer | None = None
        """Set during a wait."""
        self._asked_at_timer = 0
        self._until_ms = 0.0
        self._refusals = 0
        """How many rounds do not wait after a wait in vain."""
        self._refusals_left = _FIRST_REFUSALS
        """How many of those are to come; at first nobody is known to come back."""

    def came(self) -> None:
        """One more has asked for the next round; may end the wait for it."""
        self._asked += 1
        if self._patience is not None:
            if self._asked >= self._expected:
                self._refusals //= 2
                self._end_wait()
            elif self._clock.monotonic_ms() >= self._until_ms:
                self._refuse_the_next()
                self._end_wait()

    def must_wait(self) -> bool:
        """Whether the next round may not begin yet; `go_on` will be called when it may."""
        if self._asked >= self._expected or self._asked_before < 2:
            return False
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._answered_ms >= _GAP_MS:
            return False
        if self._refusals_left:
            self._refusals_left -= 1
            return False
        self._until_ms = now_ms + _FIRST_MS + _EACH_MS * self._expected
        self._set_timer()
        return True

    def round_begins(self) -> None:
        """All that have asked are in it."""
        self._asked, self._asked_before = 0, self._asked

    def round_answered(self) -> None:
        """Those in it have been told, and may be back soon."""
        self._expected = self._asked + self._asked_before
        self._answered_ms = self._clock.monotonic_ms()

    def _set_timer(self) -> None:
        self._patience = self._timers.call_later(_GAP_MS, self._look)
        self._asked_at_timer = self._asked

    def _look(self) -> None:
        if self._asked > self._asked_at_timer and self._clock.monotonic_ms() < self._until_ms:
            try:
                self._set_timer()
            except Exception:
                self._end_wait()
                raise
            return
        self._refuse_the_next()
        self._end_wait()

    def _refuse_the_next(self) -> None:
        self._refusals = self._refusals_left = min(2 * self._refusals + 1, _MOST_REFUSALS)

    def _end_wait(self) -> None:
        assert self._patience is not None
        self._patience.cancel()
        self._patience = None
        self._go_on()
