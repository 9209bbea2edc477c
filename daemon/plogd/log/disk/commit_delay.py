"""Delay a sync round until the clients that the last round answered have sent again.

Rounds that begin immediately would permanently split the requests of a client with several in
flight: some in the current round, the others in the next, so that each request waits for two syncs.
So when a round ends, as many requests are expected as it answered, plus those already pending. The
next round waits until they have arrived, or until none has arrived for a millisecond, the shortest
delay of a reactor timer. Polling instead of sleeping would take the CPU from a client on the same
machine. The round also begins when the wait exceeds the time in which the expected requests should
have arrived, because other clients may keep sending.

Some clients do not send again so soon: they are far away, or had only one request. So after a
fruitless wait, the next rounds do not wait: 1 round, then 3, 7, 15 and so on; each successful wait
halves the number. A single request in flight never waits, nor does a round after one that answered
a single request. See docs/decisions/0008.
"""

from __future__ import annotations

from collections.abc import Callable

from plogd.ports import Clock, Timer, Timers

_GAP_MS = 1.0
"""The wait ends after this time without a request; a later round does not wait at all."""
_FIRST_MS = 0.2
"""Expected time until the first request arrives; each further one adds `_EACH_MS`."""
_EACH_MS = 0.03
_FIRST_SKIPS = 15
_MOST_SKIPS = 255


class CommitDelay:
    """Counts the requests for the next round; calls `begin_round` when a wait is over."""

    def __init__(self, clock: Clock, timers: Timers, begin_round: Callable[[], None]) -> None:
        self._clock = clock
        self._timers = timers
        self._begin_round = begin_round
        self._asked = self._asked_before = 0
        """Number of requests for the next round, and for the last one."""
        self._expected = 0
        self._answered_ms = float("-inf")
        self._timer: Timer | None = None
        """Set during a wait."""
        self._asked_at_timer = 0
        self._until_ms = 0.0
        self._skips = 0
        """Number of rounds that do not wait after a fruitless wait."""
        self._skips_left = _FIRST_SKIPS
        """Number of these rounds still to come. The first rounds do not wait, because no client is
        known to send again yet."""

    def sync_requested(self) -> None:
        """Count a request for the next round; may end its wait."""
        self._asked += 1
        if self._timer is not None:
            if self._asked >= self._expected:
                self._skips //= 2
                self._end_wait()
            elif self._clock.monotonic_ms() >= self._until_ms:
                self._skip_next_waits()
                self._end_wait()

    def must_wait(self) -> bool:
        """Return whether the next round must wait; then `begin_round` is called after the wait."""
        if self._asked >= self._expected or self._asked_before < 2:
            return False
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._answered_ms >= _GAP_MS:  # After a pause, no client is about to send.
            return False
        if self._skips_left:
            self._skips_left -= 1
            return False
        self._until_ms = now_ms + _FIRST_MS + _EACH_MS * self._expected
        self._set_timer()
        return True

    def round_begins(self) -> None:
        """Start counting requests for the next round."""
        self._asked, self._asked_before = 0, self._asked

    def round_answered(self) -> None:
        """Expect the clients of this round, which have been answered, to send again."""
        self._expected = self._asked + self._asked_before
        self._answered_ms = self._clock.monotonic_ms()

    def _set_timer(self) -> None:
        self._timer = self._timers.call_later(_GAP_MS, self._look)
        self._asked_at_timer = self._asked

    def _look(self) -> None:
        if self._asked > self._asked_at_timer and self._clock.monotonic_ms() < self._until_ms:
            try:
                self._set_timer()
            except Exception:  # Without a timer, nothing else might end the wait.
                self._end_wait()
                raise
            return
        self._skip_next_waits()
        self._end_wait()

    def _skip_next_waits(self) -> None:
        self._skips = self._skips_left = min(2 * self._skips + 1, _MOST_SKIPS)

    def _end_wait(self) -> None:
        assert self._timer is not None
        self._timer.cancel()
        self._timer = None
        self._begin_round()
