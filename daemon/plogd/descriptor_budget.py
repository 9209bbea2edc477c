"""The descriptor budget: divide the process's file descriptors among logs, clients and the broker.

Pure accounting for ``RLIMIT_NOFILE``: `FilePool` checks the budget before a log keeps a descriptor,
`LogManager` checks it before creating logs, and the listeners check it before accepting a client.
One share is reserved for the broker itself (listeners, the metadata log, checkpoints, threads), one
for clients and one for logs. Logs and clients may use the unreserved descriptors, but never each
other's share.

The caller serializes changes to the counters; `FilePool` uses its lock for that.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable
from typing import Final

_INTERNAL_MAX: Final = 128
"""Descriptors for listeners, the reactor, locks, the metadata log, and the few files that each job
opens."""

_IDLE_MAX: Final = 4096
"""Maximum number of idle files: each takes a kilobyte of memory, and the kernel's cache makes
reopening a file cheap."""

UNLIMITED: Final = 1 << 31
"""More than a process can open, because the kernel numbers descriptors with a signed int."""


class DescriptorBudget:
    """The shares of a process's descriptors; `set_limit` computes them once the limit is known.

    Attributes:
        writing: number of files being written, which keep their descriptors.
        regions: has an element for each part of a response that keeps a file open. A deque,
            because any thread may add and remove elements without a lock.
        clients: returns the number of client connections.
        open_on_demand: returns the number of other log files that are open now.
    """

    def __init__(self, limit: int = UNLIMITED, max_clients: int = UNLIMITED) -> None:
        self.writing = 0
        self.regions: deque[None] = deque()
        self.clients: Callable[[], int] = _none
        self.open_on_demand: Callable[[], int] = _none
        self.set_limit(limit, max_clients)

    def set_limit(self, limit: int, max_clients: int, max_open_segments: int = 0) -> None:
        """Divide `limit` descriptors; clients never need more than `max_clients`.

        Idle files of logs are closed while more than `max_open_segments` are open; 0 means half of
        the limit.
        """
        self.limit = limit
        self._max_open = min(max_open_segments or limit // 2, limit)
        # With a low limit, 128 descriptors would leave too few for logs and clients.
        self._internal = min(_INTERNAL_MAX, limit // 8)
        self._reserved_for_clients = min(max_clients, limit // 4)
        self._reserved_for_logs = limit // 4
        self._spare = max(1, limit // 16)
        """The part of the logs' share for reads and for segments that are not sealed yet."""

    @property
    def max_clients(self) -> int:
        """The maximum number of client connections while logs use only their reserved share."""
        return max(0, self.limit - self._internal - self._reserved_for_logs)

    @property
    def max_idle(self) -> int:
        """The maximum number of log files that stay open while they are not being written."""
        wanted = min(2 * self._spare, self._logs_max() - self.writing)
        unused = max(self._min_idle, self._max_open - self.writing)
        return min(_IDLE_MAX, max(self._spare, wanted), unused)

    @property
    def _min_idle(self) -> int:
        """The number of idle files that stay open no matter how many are being written."""
        return max(1, min(self._spare, self._max_open // 8))

    @property
    def excess_writing(self) -> int:
        """The number of files that must be closed so that the limit on open segments is met."""
        return self.writing - self._max_written

    @property
    def is_filling(self) -> bool:
        """Whether files must soon be closed."""
        return self.writing > self._max_written * 3 // 4

    @property
    def _max_written(self) -> int:
        return max(1, self._max_open - self._min_idle)

    @property
    def is_nearly_used_up(self) -> bool:
        """Whether writes to further files will soon be refused."""
        return self.writing > self._logs_max() - 2 * self._spare

    @property
    def has_room_for_region(self) -> bool:
        """Whether another part of a response may keep a file open."""
        others = self.writing + self.open_on_demand()
        return len(self.regions) < max(1, self._logs_max() - others)

    @property
    def max_logs(self) -> int:
        """The maximum number of logs; each keeps a descriptor while it is being written."""
        unreserved = self.limit - self._internal - self._reserved_for_clients
        # One part is for reads, the other for segments that have rolled but are not sealed yet.
        return max(0, unreserved - 2 * self._spare)

    def take_for_writing(self, path: str, *, is_reserved: bool = False) -> None:
        """Count a file as being written until `give_back` is called.

        Raises OSError (EMFILE) with `path` if the logs' share is used up. A reserved file, which
        belongs to the metadata log, is never refused.
        """
        # The spare part remains free, so reads work no matter how many logs are being written.
        if not is_reserved and self.writing >= self._logs_max() - self._spare:
            raise OSError(
                errno.EMFILE,
                f"no file descriptors are left for logs: {self.writing} log files are being"
                f" written, and the rest of the {self.limit} descriptors is reserved; raise the"
                " limit on open files",
                path,
            )
        self.writing += 1

    def give_back(self) -> None:
        """Stop counting a file that is no longer being written."""
        assert self.writing > 0
        self.writing -= 1

    def has_room_for_client(self) -> bool:
        """Return whether another connection leaves the logs their share."""
        # The reserved share counts even while it is unused: the logs may need it at their next
        # roll.
        logs = max(self._reserved_for_logs, self.writing + self.open_on_demand())
        return self.clients() < self.limit - self._internal - logs

    def _logs_max(self) -> int:
        clients = max(self._reserved_for_clients, self.clients())
        return self.limit - self._internal - clients


def _none() -> int:
    return 0
