"""Wait until log start offsets are on disk, so that deletions of records are durable.

A log start offset exists only in memory until it is written to ``log-start-offset-checkpoint``, a
file that covers all logs in a log directory. All waiters in one turn therefore share a single
write: deleting records in all partitions of a topic writes the file once, not once per partition.
offset_checkpoints.py writes the file.

Called on the reactor's thread. Invariant: a waiter completes with True only if it was registered
before the offsets were collected.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from plogd.ports import Later, Turn, spawn


class LogStartCheckpoint:
    """Shared writes of log start offsets.

    `write(log_dir)` writes the offsets for a directory and returns whether that succeeded.
    """

    def __init__(self, *, turn: Turn, write: Callable[[str], Awaitable[bool]]) -> None:
        self._turn = turn
        self._write = write
        self._waiting: dict[str, list[Later[bool]]] = {}
        """Waiters for a write that has not begun, by log directory."""

    def written(self, log_dir: str) -> Later[bool]:
        """Write the log start offsets for `log_dir`; return whether that succeeded."""
        later: Later[bool] = Later()
        if log_dir not in self._waiting:
            self._waiting[log_dir] = []
            self._turn.defer(lambda: self._begin(log_dir))
        self._waiting[log_dir].append(later)
        return later

    def _begin(self, log_dir: str) -> None:
        # Removed before the write collects the offsets, because later waiters need another write.
        waiting = self._waiting.pop(log_dir)

        def complete(is_written: bool) -> None:
            for later in waiting:
                later.succeed(is_written)

        def fail(error: Exception) -> None:
            for later in waiting:
                later.fail(error)

        spawn(self._look_up_and_write(log_dir)).then(complete, fail)

    async def _look_up_and_write(self, log_dir: str) -> bool:
        # A separate coroutine, so that an exception raised by the call itself reaches `fail`.
        return await self._write(log_dir)
