"""Waits between the tries of one thing: each longer than the last, until there is no time left."""

from __future__ import annotations

from plog.client.network import Network
from plog.errors import KafkaError, RequestTimedOut

_JITTER = 0.2
_GROWTH = 2
_TRIED = " (tried for "


class Backoff:
    """Begins at `first_s` and doubles up to `longest_s`; all of it takes `timeout_s` at most.

    A fifth more or less by chance, so that clients that failed together do not return together.
    Source: KIP-580.
    """

    def __init__(
        self, network: Network, *, first_s: float, longest_s: float, timeout_s: float
    ) -> None:
        self._network = network
        self._next_s = first_s
        self._longest_s = longest_s
        self._timeout_s = timeout_s
        self._deadline_s = network.now_s() + timeout_s

    @property
    def left_s(self) -> float:
        """How long there is still time, below 0 when it is over."""
        return self._deadline_s - self._network.now_s()

    @property
    def is_over(self) -> bool:
        """Whether there is no time for another try."""
        return self.left_s <= 0

    async def wait(self) -> None:
        """Wait before the next try."""
        jitter = 1 + _JITTER * (2 * self._network.random() - 1)
        await self._network.sleep(min(self._next_s * jitter, max(0.0, self.left_s)))
        self._next_s = min(self._next_s * _GROWTH, self._longest_s)

    async def wait_or_raise(self, error: KafkaError) -> None:
        """Wait before the next try; without time left, raise `error` with how long it was tried."""
        if self.is_over:
            if str(error) and _TRIED not in str(error):  # One within another tells of it once.
                text = str(error).rstrip(".")
                error.args = (f"{text}{_TRIED}{self._timeout_s:g} s)",)
            raise error
        await self.wait()


def timed_out(what: str, timeout_s: float) -> RequestTimedOut:
    """The error for `what` has not happened in time."""
    return RequestTimedOut(f"{what}: not within {timeout_s:g} s")
