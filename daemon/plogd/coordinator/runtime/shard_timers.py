"""A port for the timers of a coordinator shard; each timer has a key.

When a timer is due, its operation runs as a write to the shard: the records are appended and
replayed like the records of a request. The runtime implements this port. When it unloads a shard,
it cancels all of the shard's timers, so a timer never runs on unloaded state.

Source: Kafka 4.0 CoordinatorTimer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from plogd.coordinator.runtime.coordinator_result import Result


class ShardTimers(Protocol):
    """Scheduled operations of one shard. Delays are measured on the monotonic clock."""

    def schedule(self, key: str, delay_ms: float, operation: Callable[[], Result[None]]) -> None:
        """Run `operation` once after `delay_ms`; this replaces the key's previous operation."""
        ...

    def cancel(self, key: str) -> None:
        """Cancel the operation for `key`, if there is one."""
        ...

    def is_scheduled(self, key: str) -> bool:
        """Return whether an operation is scheduled for `key`."""
        ...
