"""What syncs have cost of late, from which group commit chooses the cheaper kind of round.

Pure numbers; group_commit.py asks before a round and tells what it took.
"""

from __future__ import annotations

from dataclasses import dataclass

_MISTRUST_MS = 30_000.0
"""How long ``syncfs`` is avoided after it took far longer than predicted: strangers write a lot."""
_SURPRISE = 4.0
_WEIGHT = 0.2
"""Of the newest observation in a running cost."""
_HALF_LIFE_MS = 15_000.0
"""How soon half of what a running cost has learned is forgotten."""
_FILE_MS = 0.3
"""An ``fdatasync``, before anything is learned of it."""
_FILE_SYSTEM_MS = 6.0
"""A ``syncfs``."""


@dataclass(slots=True)
class _RunningCost:
    """What something takes, in ms: learned from what it took, forgotten when that was long ago.

    A cost that is too high keeps its thing from being done, and so from being learned anew. So it
    goes back to `first_ms`, half the way each _HALF_LIFE_MS.
    """

    first_ms: float
    last_ms: float
    observed_ms: float = 0.0

    def at(self, now_ms: float) -> float:
        """What it would take now."""
        faded: float = 0.5 ** ((now_ms - self.observed_ms) / _HALF_LIFE_MS)
        return self.first_ms + (self.last_ms - self.first_ms) * faded

    def observe(self, took_ms: float, now_ms: float) -> None:
        """It has just taken this long."""
        predicted_ms = self.at(now_ms)
        self.last_ms = predicted_ms + _WEIGHT * (took_ms - predicted_ms)
        self.observed_ms = now_ms


class SyncCosts:
    """What both kinds of round cost. One thread writes, while a round is in flight; any may ask."""

    __slots__ = ("_file", "_file_system", "_mistrusted_until_ms")

    def __init__(self) -> None:
        self._file = _RunningCost(_FILE_MS, _FILE_MS)
        self._file_system = _RunningCost(_FILE_SYSTEM_MS, _FILE_SYSTEM_MS)
        self._mistrusted_until_ms = float("-inf")

    def prefers_file_system(self, file_count: int, now_ms: float) -> bool:
        """Whether one ``syncfs`` is cheaper than to sync so many files."""
        return (
            file_count > 1
            and now_ms >= self._mistrusted_until_ms
            and file_count * self._file.at(now_ms) > self._file_system.at(now_ms)
        )

    def observe_files(self, file_count: int, took_ms: float, now_ms: float) -> None:
        """So many files took this long, one after the other."""
        self._file.observe(took_ms / file_count, now_ms)

    def observe_file_system(self, took_ms: float, now_ms: float) -> None:
        """One ``syncfs`` took this long; far more than predicted means none for a while."""
        if took_ms > _SURPRISE * self._file_system.at(now_ms):
            self._mistrusted_until_ms = now_ms + _MISTRUST_MS
        self._file_system.observe(took_ms, now_ms)
