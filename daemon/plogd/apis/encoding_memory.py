"""Memory of the responses that are being encoded, counted over all connections.

A response counts from its first slice until it is handed over to be sent, where response_memory.py
counts it. While the responses in progress have more than ``plog.queued.max.response.bytes``, only
the oldest of them goes on and the others wait in line, so that there is always one that finishes.

Reactor thread only. Invariants: `used_bytes` is the sum of the shares; while anything waits, the
oldest share does not, or may go on already.
"""

from __future__ import annotations

from collections.abc import Callable

from plogd.ports import Later


class WorkMemory:
    """The budget of a broker.

    Args:
        limit_bytes: tells the bound, which may change at any time.

    Attributes:
        used_bytes: what is in progress now.
    """

    def __init__(self, limit_bytes: Callable[[], int]) -> None:
        self._limit_bytes = limit_bytes
        self.used_bytes = 0
        self._shares: dict[Share, None] = {}
        """The oldest one first."""
        self._waiting: dict[Share, Later[None]] = {}

    @property
    def is_full(self) -> bool:
        """Whether more is in progress than there should be."""
        return self.used_bytes > self._limit_bytes()

    def begin(self) -> Share:
        """A share without bytes, for work that begins; it must be released."""
        share = Share(self)
        self._shares[share] = None
        return share

    def may_go_on(self, share: Share) -> bool:
        """Whether `share` may grow now; if so, wake the next in line."""
        if self.is_full and share is not next(iter(self._shares)):
            return False
        self._wake()
        return True

    def wait(self, share: Share) -> Later[None]:
        """Wait in line; ask `may_go_on` again after it."""
        outcome: Later[None] = Later(lambda: self._give_up(share))
        self._waiting[share] = outcome
        return outcome

    def release(self, share: Share) -> None:
        """`share` has ended."""
        self.used_bytes -= share.nbytes
        del self._shares[share]
        self._wake()

    def _give_up(self, share: Share) -> None:
        del self._waiting[share]

    def _wake(self) -> None:
        """Tell one to go on, which tells the next one: a crowd would only be sent back."""
        if self._waiting:
            oldest = next(iter(self._shares))
            first = oldest if oldest in self._waiting else next(iter(self._waiting))
            if first is oldest or not self.is_full:
                self._waiting.pop(first).succeed(None)


class Share:
    """What one response in progress has of the budget."""

    __slots__ = ("_memory", "nbytes")

    def __init__(self, memory: WorkMemory) -> None:
        self._memory = memory
        self.nbytes = 0

    def may_go_on(self) -> bool:
        """Whether the next slice may be made now; if not, `wait`."""
        return self._memory.may_go_on(self)

    def wait(self) -> Later[None]:
        """Wait in line; ask again after it."""
        return self._memory.wait(self)

    def resize(self, nbytes: int) -> None:
        """It has `nbytes` now."""
        self._memory.used_bytes += nbytes - self.nbytes
        self.nbytes = nbytes

    def release(self) -> None:
        """The work has ended, in whatever way."""
        self._memory.release(self)
