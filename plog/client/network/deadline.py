"""The time limit of one call, carried by everything that the call waits for.

A public method with a timeout makes one `Deadline` and passes it on. Each wait on the way (opening
a connection, a request, a pause before another try, a metadata refresh) ends when it is over, so
that the whole call takes no longer than its caller allows. Kafka's noun is Timer.
"""

from __future__ import annotations

import math

from plog.client.network.ports import Network


class Deadline:
    """The end of a call that may take `timeout_s`, which is `math.inf` for one without a limit."""

    __slots__ = ("_at_s", "_network", "timeout_s")

    def __init__(self, network: Network, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        """How long the call may take in all."""
        self._network = network
        self._at_s = network.now_s() + timeout_s

    @property
    def left_s(self) -> float:
        """Seconds left, 0 when it is over."""
        return max(0.0, self._at_s - self._network.now_s())

    @property
    def wait_s(self) -> float | None:
        """The same, as `Signal.wait` takes it: None without an end."""
        return None if self._at_s == math.inf else self.left_s

    @property
    def is_over(self) -> bool:
        """Whether there is no time left."""
        return self._at_s <= self._network.now_s()

    def __repr__(self) -> str:
        return f"<Deadline: {self.left_s:g} of {self.timeout_s:g} s left>"
