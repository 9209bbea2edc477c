"""Recent sync costs, from which group commit chooses the cheaper kind of round.

Pure arithmetic: group_commit.py queries the costs before a round and reports its duration.
"""

from __future__ import annotations

from dataclasses import dataclass

# syncfs also syncs the files of other programs, which may be writing a lot for a while.
_MISTRUST_MS = 30_000.0
"""The time for which ``syncfs`` is avoided after it took much longer than predicted."""
_SURPRISE = 4.0
"""After a ``syncfs`` that takes more than this many times its predicted cost, it is avoided."""
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
    """The running cost of an operation in ms, which decays to its initial value.

    An operation that looks too expensive is not chosen, and therefore not measured again. So its
    cost returns to `first_ms`: every _HALF_LIFE_MS, the difference is halved.
    """

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
    """The costs of both kinds of rounds. A round's thread updates them; any thread reads them."""

    __slots__ = ("_file", "_file_system", "_mistrusted_until_ms")

    def __init__(self) -> None:
        self._file = _RunningCost(_FILE_MS, _FILE_MS)
        self._file_system = _RunningCost(_FILE_SYSTEM_MS, _FILE_SYSTEM_MS)
        self._mistrusted_until_ms = float("-inf")

    def prefers_file_system(self, file_count: int, now_ms: float) -> bool:
        """Return whether one ``syncfs`` is cheaper than syncing `file_count` files."""
        return (
            file_count > 1  # For one file, fdatasync never does more work than syncfs.
            and now_ms >= self._mistrusted_until_ms
            and file_count * self._file.at(now_ms) > self._file_system.at(now_ms)
        )

    def observe_files(self, file_count: int, took_ms: float, now_ms: float) -> None:
        """Record the time of `file_count` sequential ``fdatasync`` calls."""
        self._file.observe(took_ms / file_count, now_ms)

    def observe_file_system(self, took_ms: float, now_ms: float) -> None:
        """Record the time of a ``syncfs``; avoid further ones for a while if it took too long."""
        # Before `observe`, which would include this surprise in the prediction.
        if took_ms > _SURPRISE * self._file_system.at(now_ms):
            self._mistrusted_until_ms = now_ms + _MISTRUST_MS
        self._file_system.observe(took_ms, now_ms)
