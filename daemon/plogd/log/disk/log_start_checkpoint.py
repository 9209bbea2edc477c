"""Making deletions of records durable: whoever deleted some waits here for the log's new start.

A log's start is a number in memory until ``log-start-offset-checkpoint`` says it, and that file is
about all logs of a directory. So those who ask in one turn share one writing of it: a purge of a
topic is one file, not one a partition. offset_checkpoints.py does the writing.

Called on the reactor's thread. Invariant: who is told True asked before the offsets were looked up.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from plogd.ports import Later, Turn, spawn


class LogStartCheckpoint:
    """`write(log_dir)` writes the log starts of a directory; whether it could."""

    def __init__(self, *, turn: Turn, write: Callable[[str], Awaitable[bool]]) -> None:
        self._turn = turn
        self._write = write
        self._waiting: dict[str, list[Later[bool]]] = {}
        """For a writing that has not begun, by log directory."""

    def written(self, log_dir: str) -> Later[bool]:
        """Have the log starts of `log_dir` written, as they are now or later; whether they were."""
        later: Later[bool] = Later()
        if log_dir not in self._waiting:
            self._waiting[log_dir] = []
            self._turn.defer(lambda: self._begin(log_dir))
        self._waiting[log_dir].append(later)
        return later

    def _begin(self, log_dir: str) -> None:
        waiting = self._waiting.pop(log_dir)

        def tell(is_written: bool) -> None:
            for later in waiting:
                later.succeed(is_written)

        def fail(error: Exception) -> None:
            for later in waiting:
                later.fail(error)

        spawn(self._look_up_and_write(log_dir)).then(tell, fail)

    async def _look_up_and_write(self, log_dir: str) -> bool:
        return await self._write(log_dir)
