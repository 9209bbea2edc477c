"""Exponential backoff between the attempts of a call, until the call's deadline."""

from __future__ import annotations

from plog.client.network.deadline import Deadline
from plog.client.network.ports import Network
from plog.errors import KafkaError, RequestTimedOut

# The same values as in Kafka (KIP-580). The jitter keeps clients that failed at the same time from
# retrying at the same time.
_JITTER = 0.2
_GROWTH = 2
# An error text that contains this already states the time spent.
_TRIED = " (tried for "


class Backoff:
    """The pauses between one call's attempts, which double from `first_s` to `longest_s`.

    The pauses end at the deadline. Each pause is randomized by 20 %. Source: KIP-580.
    """

    def __init__(
        self, network: Network, *, first_s: float, longest_s: float, deadline: Deadline
    ) -> None:
        self.deadline = deadline
        self._network = network
        self._next_s = first_s
        self._longest_s = longest_s

    @property
    def left_s(self) -> float:
        """The seconds until the deadline, or 0 after it."""
        return self.deadline.left_s

    @property
    def is_over(self) -> bool:
        """Whether no time is left for another attempt."""
        return self.deadline.is_over

    async def wait(self) -> None:
        """Wait before the next attempt."""
        jitter = 1 + _JITTER * (2 * self._network.random() - 1)
        await self._network.sleep(min(self._next_s * jitter, self.left_s))
        self._next_s = min(self._next_s * _GROWTH, self._longest_s)

    async def wait_or_raise(self, error: KafkaError) -> None:
        """Wait before the next attempt; if no time is left, raise `error` with the time spent."""
        if not self.is_over:
            await self.wait()
        # Another attempt without time left would fail with a timeout, which hides the reason.
        if self.is_over:
            # An inner call may already have added the time.
            if str(error) and _TRIED not in str(error):
                text = str(error).rstrip(".")
                error.args = (f"{text}{_TRIED}{self.deadline.timeout_s:g} s)",)
            raise error


def timed_out(what: str, timeout_s: float, why: object = None) -> RequestTimedOut:
    """Return the error for an operation that timed out; `why` is the last error, if any."""
    reason = "" if why is None else f": {why}"
    return RequestTimedOut(f"{what}: timed out after {timeout_s:g} s{reason}")
