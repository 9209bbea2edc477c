"""Recent costs of syncs, which determine whether a round uses ``fdatasync`` or ``syncfs``.

This module only computes: group_commit.py queries the costs before each round, and reports the
duration of the round.
"""

from __future__ import annotations

from dataclasses import dataclass

# syncfs also syncs the files of other programs, which may write large amounts for a while.
_MISTRUST_MS = 30_000.0
"""The time for which ``syncfs`` is avoided after it has taken much longer than predicted."""
_SURPRISE = 4.0
"""``syncfs`` is avoided after it has taken more than this multiple of its predicted cost."""
_WEIGHT = 0.2
"""The weight of a new observation in a running cost."""
_HALF_LIFE_MS = 15_000.0
"""The half-life of a running cost."""
_FILE_MS = 0.3
"""The cost of an ``fdatasync`` before any observation."""
_FILE_SYSTEM_MS = 6.0
"""The cost of a ``syncfs`` before any observation."""


@dataclass(slots=True)
class _RunningCost:
    """The average cost of an operation in ms, which decays to the initial value `first_ms`."""

    # An operation that seems too expensive is not chosen, so it is not measured again. Without the
    # decay, one slow sync could rule the operation out forever.

    first_ms: float
    last_ms: float
    observed_ms: float = 0.0

    def at(self, now_ms: float) -> float:
        """Return the predicted cost."""
        faded: float = 0.5 ** ((now_ms - self.observed_ms) / _HALF_LIFE_MS)
        return self.first_ms + (self.last_ms - self.first_ms) * faded

    def observe(self, took_ms: float, now_ms: float) -> None:
        """Record a measured cost."""
        predicted_ms = self.at(now_ms)
        self.last_ms = predicted_ms + _WEIGHT * (took_ms - predicted_ms)
        self.observed_ms = now_ms


class SyncCosts:
    """The costs of both types of rounds. A round's job updates them; any thread may read them."""

    __slots__ = ("_file", "_file_system", "_mistrusted_until_ms")

    def __init__(self) -> None:
        self._file = _RunningCost(_FILE_MS, _FILE_MS)
        self._file_system = _RunningCost(_FILE_SYSTEM_MS, _FILE_SYSTEM_MS)
        self._mistrusted_until_ms = float("-inf")

    def prefers_file_system(self, file_count: int, now_ms: float) -> bool:
        """Return whether one ``syncfs`` is cheaper than syncing `file_count` files."""
        return (
            file_count > 1  # For a single file, fdatasync never does more work than syncfs.
            and now_ms >= self._mistrusted_until_ms
            and file_count * self._file.at(now_ms) > self._file_system.at(now_ms)
        )

    def observe_files(self, file_count: int, took_ms: float, now_ms: float) -> None:
        """Record the time of `file_count` sequential ``fdatasync`` calls."""
        self._file.observe(took_ms / file_count, now_ms)

    def observe_file_system(self, took_ms: float, now_ms: float) -> None:
        """Record the time of a ``syncfs``; avoid ``syncfs`` for a while if that was too long."""
        # Before `observe`, which includes this observation in the prediction.
        if took_ms > _SURPRISE * self._file_system.at(now_ms):
            self._mistrusted_until_ms = now_ms + _MISTRUST_MS
        self._file_system.observe(took_ms, now_ms)
