"""The time limit of one call; it applies to all of the call's waits.

A public method with a timeout creates a `Deadline` and passes it on. Every wait in the call (for a
connection, a response, a retry backoff or a metadata refresh) ends at the deadline, so that the
whole call does not exceed its timeout. Kafka's clients call this a Timer.
"""

from __future__ import annotations

import math

from plog.client.network.ports import Network


class Deadline:
    """The time at which a call ends, `timeout_s` from now; `math.inf` means no limit."""

    __slots__ = ("_at_s", "_network", "timeout_s")

    def __init__(self, network: Network, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        """How long the whole call may take."""
        self._network = network
        self._at_s = network.now_s() + timeout_s

    @property
    def left_s(self) -> float:
        """The seconds left, or 0 after the deadline."""
        # Timers and sockets reject negative times.
        return max(0.0, self._at_s - self._network.now_s())

    @property
    def wait_s(self) -> float | None:
        """The seconds left, as `Signal.wait` expects them: None if there is no limit."""
        return None if self._at_s == math.inf else self.left_s

    @property
    def is_over(self) -> bool:
        """Whether no time is left."""
        return self._at_s <= self._network.now_s()

    def __repr__(self) -> str:
        return f"<Deadline: {self.left_s:g} of {self.timeout_s:g} s left>"
