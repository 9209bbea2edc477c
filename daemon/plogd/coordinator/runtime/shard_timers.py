"""The timers of one shard of coordinator state, each with a key.

A timer that is due runs its operation as a write of its shard: its records are appended and
replayed like those of a request. The runtime implements this port and cancels every timer of a
shard it unloads, so a timer never meets state that is not there any more.

Source: Kafka 4.0 CoordinatorTimer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from plogd.coordinator.runtime.coordinator_result import Result


class ShardTimers(Protocol):
    """Operations of one shard that are due later. Deadlines are on the monotonic clock."""

    def schedule(self, key: str, delay_ms: float, operation: Callable[[], Result[None]]) -> None:
        """Run `operation` once, `delay_ms` from now, instead of what `key` had before."""
        ...

    def cancel(self, key: str) -> None:
        """Do not run what `key` has; harmless when it has nothing."""
        ...

    def is_scheduled(self, key: str) -> bool:
        """Whether `key` has an operation that is still to run."""
        ...
