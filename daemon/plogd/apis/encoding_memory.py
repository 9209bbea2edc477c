"""The memory of responses that are being encoded, counted over all connections.

A response counts from its first slice until it is queued for sending; from then on,
response_memory.py counts it. While the responses in progress exceed
``plog.queued.max.response.bytes``, only the oldest response continues, and all others wait.

Reactor thread only. Invariants: `used_bytes` is the sum of the shares; while any share waits, the
oldest share either is not waiting or has been woken.
"""

from __future__ import annotations

from collections.abc import Callable

from plogd.ports import Later


class WorkMemory:
    """A budget that the responses in progress share.

    Args:
        limit_bytes: returns the limit, which can change at any time.

    Attributes:
        used_bytes: the bytes of all responses in progress.
    """

    def __init__(self, limit_bytes: Callable[[], int]) -> None:
        self._limit_bytes = limit_bytes
        self.used_bytes = 0
        # A dict as an ordered set, from which a share in the middle is removed in constant time.
        self._shares: dict[Share, None] = {}
        """Oldest first."""
        self._waiting: dict[Share, Later[None]] = {}

    @property
    def is_full(self) -> bool:
        """Whether the responses in progress exceed the limit."""
        return self.used_bytes > self._limit_bytes()

    def begin(self) -> Share:
        """Return an empty share for a response to be encoded; the caller must release it."""
        share = Share(self)
        self._shares[share] = None
        return share

    def may_continue(self, share: Share) -> bool:
        """Return whether `share` may grow now; if so, wake the next waiting share."""
        # The oldest share may exceed the limit: if all shares waited, none would ever be released.
        if self.is_full and share is not next(iter(self._shares)):
            return False
        self._wake()
        return True

    def wait(self, share: Share) -> Later[None]:
        """Wait until `share` is woken; check `may_continue` again afterward."""
        outcome: Later[None] = Later(lambda: self._give_up(share))
        self._waiting[share] = outcome
        return outcome

    def release(self, share: Share) -> None:
        """Remove `share` and its bytes; later calls have no effect."""
        if share in self._shares:
            self.used_bytes -= share.nbytes
            del self._shares[share]
            self._wake()

    def _give_up(self, share: Share) -> None:
        # Only the wait ends here; the encoder releases the share itself.
        del self._waiting[share]

    def _wake(self) -> None:
        """Wake one share; it wakes the next one when it continues."""
        # Waking all shares would be useless, because most of them would have to wait again.
        if self._waiting:
            oldest = next(iter(self._shares))
            first = oldest if oldest in self._waiting else next(iter(self._waiting))
            if first is oldest or not self.is_full:
                self._waiting.pop(first).succeed(None)


class Share:
    """The part of a budget that one response in progress uses."""

    __slots__ = ("_memory", "nbytes")

    def __init__(self, memory: WorkMemory) -> None:
        self._memory = memory
        self.nbytes = 0

    def may_continue(self) -> bool:
        """Return whether the next slice may be encoded now; if not, call `wait`."""
        return self._memory.may_continue(self)

    def wait(self) -> Later[None]:
        """Wait until this share is woken; check `may_continue` again afterward."""
        return self._memory.wait(self)

    def resize(self, nbytes: int) -> None:
        """Set the number of bytes encoded so far to `nbytes`."""
        # The limit can be exceeded by a slice per share, because a slice's size is unknown until it
        # is encoded.
        self._memory.used_bytes += nbytes - self.nbytes
        self.nbytes = nbytes

    def release(self) -> None:
        """Release the share; must be called whether the encoding succeeded or failed."""
        self._memory.release(self)
