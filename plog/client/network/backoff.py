"""Pauses between the tries of a call, each longer than the last, until its deadline."""

from __future__ import annotations

from plog.client.network.deadline import Deadline
from plog.client.network.ports import Network
from plog.errors import KafkaError, RequestTimedOut

_JITTER = 0.2
_GROWTH = 2
_TRIED = " (tried for "


class Backoff:
    """Starts at `first_s` and doubles up to `longest_s`; no pause outlasts the deadline.

    A fifth more or less by chance, so that clients that failed together do not return together.
    Source: KIP-580.
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
        """Seconds until the deadline, 0 when it is over."""
        return self.deadline.left_s

    @property
    def is_over(self) -> bool:
        """Whether there is no time for another try."""
        return self.deadline.is_over

    async def wait(self) -> None:
        """Wait before the next try."""
        jitter = 1 + _JITTER * (2 * self._network.random() - 1)
        await self._network.sleep(min(self._next_s * jitter, self.left_s))
        self._next_s = min(self._next_s * _GROWTH, self._longest_s)

    async def wait_or_raise(self, error: KafkaError) -> None:
        """Wait before the next try; raise `error` with the time spent if there is none left."""
        if not self.is_over:
            await self.wait()
        if self.is_over:  # A try without time would only hide why the others failed.
            if str(error) and _TRIED not in str(error):  # An inner call has added it already.
                text = str(error).rstrip(".")
                error.args = (f"{text}{_TRIED}{self.deadline.timeout_s:g} s)",)
            raise error


def timed_out(what: str, timeout_s: float, why: object = None) -> RequestTimedOut:
    """The error for `what` not having happened in time, with the last error if there was one."""
    reason = "" if why is None else f": {why}"
    return RequestTimedOut(f"{what}: timed out after {timeout_s:g} s{reason}")
