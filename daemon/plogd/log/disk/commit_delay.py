"""Delay a sync round until the clients that the last round answered have sent new requests.

If each round began immediately, the requests of a client with several requests in flight would
remain split between the current round and the next, and each request would wait for two syncs.
Therefore, when a round ends, the broker expects as many new requests as the round answered, in
addition to the pending requests. The next round waits until the expected requests have arrived, or
until no request has arrived for a millisecond. The wait also has a maximum duration.

Some clients do not send again within a millisecond: they are far away, or had only one request to
send. After a wait that timed out, the next rounds therefore do not wait: 1 round, then 3, 7, 15 and
so on. Each successful wait halves the number. A single request in flight never waits, and a round
never waits if the previous round answered a single request. See docs/decisions/0008.
"""

from __future__ import annotations

from collections.abc import Callable

from plogd.ports import Clock, Timer, Timers

# The shortest delay that a reactor timer supports. Polling would take CPU time from clients on the
# same machine.
_GAP_MS = 1.0
"""A wait ends after this time without a request. A round that is ready later does not wait."""
_FIRST_MS = 0.2
"""Expected time until the first request arrives; each of the others adds `_EACH_MS`."""
_EACH_MS = 0.03
# At first, it is not known yet whether clients send again.
_FIRST_SKIPS = 15
# Thus, clients that are too far away to send again in time delay only one round in 256.
_MOST_SKIPS = 255


class CommitDelay:
    """Counts the requests for the next round, and calls `begin_round` at the end of a wait."""

    def __init__(self, clock: Clock, timers: Timers, begin_round: Callable[[], None]) -> None:
        self._clock = clock
        self._timers = timers
        self._begin_round = begin_round
        self._asked = self._asked_before = 0
        """Number of requests for the next round, and for the last round."""
        self._expected = 0
        self._answered_ms = float("-inf")
        self._timer: Timer | None = None
        """Set during a wait."""
        self._asked_at_timer = 0
        self._until_ms = 0.0
        self._skips = 0
        """Number of rounds that do not wait after a wait that timed out."""
        self._skips_left = _FIRST_SKIPS
        """Number of these rounds that are still to come."""

    def sync_requested(self) -> None:
        """Count a request for the next round, which may end the wait."""
        self._asked += 1
        if self._timer is not None:
            if self._asked >= self._expected:
                self._skips //= 2
                self._end_wait()
            # By now, requests come from other clients. If a round waited for as long as requests
            # keep arriving, rounds would become longer and longer.
            elif self._clock.monotonic_ms() >= self._until_ms:
                self._skip_next_waits()
                self._end_wait()

    def must_wait(self) -> bool:
        """Return whether the next round must wait; `begin_round` is then called after the wait."""
        # If the last round had only one request, it cannot have split a client's requests.
        if self._asked >= self._expected or self._asked_before < 2:
            return False
        now_ms = self._clock.monotonic_ms()
        # Clients that send again would already have done so.
        if now_ms - self._answered_ms >= _GAP_MS:
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
        """Expect new requests, because the clients of this round have received their responses."""
        self._expected = self._asked + self._asked_before
        self._answered_ms = self._clock.monotonic_ms()

    def _set_timer(self) -> None:
        # Requests do not reset the timer; `_look` sets another timer if requests have arrived.
        self._timer = self._timers.call_later(_GAP_MS, self._look)
        self._asked_at_timer = self._asked

    def _look(self) -> None:
        if self._asked > self._asked_at_timer and self._clock.monotonic_ms() < self._until_ms:
            try:
                self._set_timer()
            except Exception:  # Without a timer, the wait might never end.
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
