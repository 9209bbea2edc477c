"""How the descriptors of the process are divided among logs, clients and the rest of the broker.

Pure accounting over ``RLIMIT_NOFILE``: `FilePool` asks before a log keeps a descriptor,
`LogManager` before it creates logs, the listeners before they accept a client. A share is kept for
the broker itself (listeners, the metadata log, checkpoints, threads), one for clients and one for
logs. Logs and clients may take what the other side does not use, but never its share.

The caller serializes changes of the counters; `FilePool` does with its lock.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Final

_INTERNAL_MAX: Final = 128
"""Listeners, the reactor, locks, the metadata log, and a few files that each job opens."""

_IDLE_MAX: Final = 4096
"""Each takes a kilobyte of memory, and the system's own cache makes a reopening cheap."""

UNLIMITED: Final = 1 << 31


class DescriptorBudget:
    """The shares; `set_limit` computes them once the limit of the process is known.

    Attributes:
        writing: files that are being written, which keep their descriptors.
        clients: returns how many connections of clients there are.
        open_on_demand: returns how many other files of logs are open at the moment.
    """

    def __init__(self, limit: int = UNLIMITED, max_clients: int = UNLIMITED) -> None:
        self.writing = 0
        self.clients: Callable[[], int] = _none
        self.open_on_demand: Callable[[], int] = _none
        self.set_limit(limit, max_clients)

    def set_limit(self, limit: int, max_clients: int) -> None:
        """Divide `limit` descriptors; clients never need more than `max_clients`."""
        self.limit = limit
        self._internal = min(_INTERNAL_MAX, limit // 8)
        self._reserved_for_clients = min(max_clients, limit // 4)
        self._reserved_for_logs = limit // 4
        self._spare = max(1, limit // 16)
        """Of the descriptors of logs: for reading, and for segments that are not sealed yet."""

    @property
    def max_idle(self) -> int:
        """How many files of logs may stay open that are not being written."""
        wanted = min(2 * self._spare, self._logs_max() - self.writing)
        return min(_IDLE_MAX, max(self._spare, wanted))

    @property
    def max_logs(self) -> int:
        """How many logs may exist: each keeps a descriptor while it is written."""
        unreserved = self.limit - self._internal - self._reserved_for_clients
        return max(0, unreserved - 2 * self._spare)

    def take_for_writing(self, path: str, *, is_reserved: bool = False) -> None:
        """Count a file that is being written, until `give_back`.

        Raises OSError (EMFILE), which names `path`, when logs have no descriptor left. A reserved
        file, one of the metadata log, is never refused.
        """
        if not is_reserved and self.writing >= self._logs_max() - self._spare:
            why = f"logs already write {self.writing} files of the {self.limit} this process may"
            raise OSError(errno.EMFILE, f"{why} open; the others are reserved", path)
        self.writing += 1

    def give_back(self) -> None:
        """A counted file is not written any more."""
        assert self.writing > 0
        self.writing -= 1

    def has_room_for_client(self) -> bool:
        """Whether another connection leaves the logs their share."""
        logs = max(self._reserved_for_logs, self.writing + self.open_on_demand())
        return self.clients() < self.limit - self._internal - logs

    def _logs_max(self) -> int:
        clients = max(self._reserved_for_clients, self.clients())
        return self.limit - self._internal - clients


def _none() -> int:
    return 0
