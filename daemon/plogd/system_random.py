"""`Random` of plogd/ports.py, with the random numbers of the operating system.

machine.py creates a `SystemRandom` for each broker; system_clock.py implements `Clock` and
`Timers`.
"""

from __future__ import annotations

import os
import random


class SystemRandom:
    """Random numbers from the operating system."""

    __slots__ = ("_random",)

    def __init__(self) -> None:
        # The default generator is predictable, but clients must not guess fetch session ids
        # (KIP-227).
        self._random = random.SystemRandom()

    def random_bytes(self, length: int) -> bytes:
        """Return `length` unpredictable bytes."""
        return os.urandom(length)

    def randrange(self, stop: int) -> int:
        """Return a random int in [0, stop)."""
        return self._random.randrange(stop)
