"""The time between an application's polls, which ``max.poll.interval.ms`` limits (KIP-62)."""

from __future__ import annotations

from plog.client.network.ports import Network


class PollInterval:
    """The time since the last poll."""

    def __init__(self, network: Network, longest_ms: int) -> None:
        self._network = network
        self._longest_s = longest_ms / 1000
        self._polled_s = network.now_s()
        self._is_polling = False

    def polled(self, *, waits: bool = False) -> None:
        """Record a poll; with `waits`, the poll lasts until the next call. Thread-safe."""
        self._polled_s = self._network.now_s()
        self._is_polling = waits

    @property
    def left_s(self) -> float:
        """The seconds from the last poll until the next poll is due; negative if it is overdue."""
        return self._polled_s + self._longest_s - self._network.now_s()

    def expires_s(self, now_s: float) -> float:
        """Return when the interval expires, if the application does not poll again."""
        # A poll in progress is never overdue, even if it waits for records for a long time.
        return (now_s if self._is_polling else self._polled_s) + self._longest_s
