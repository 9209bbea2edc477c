"""Unexpected exceptions at any call of a port, in addition to all other faults.

A few times in a run, a later call raises an exception that is not an `OSError`: before it has any
effect, halfway, or after its full effect. The broker may respond with UNKNOWN_SERVER_ERROR or
KAFKA_STORAGE_ERROR, take a log directory offline, or exit and be restarted. It must count the
exception as a bug, and no client may see an anomaly or wait forever. Any other unexpected error is
a `crash`, as always.

tests/helpers/injection.py lists the calls.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from plog.errors import ErrorCode
from plog.wire.structs import Struct
from tests.helpers.injection import Faults, When

if TYPE_CHECKING:
    from tests.sim.world import World

_KINDS: tuple[type[Exception], ...] = (
    MemoryError,
    RuntimeError,
    AssertionError,
    ValueError,
    KeyError,
    RecursionError,
)


class Exceptions:
    """Injects exceptions as a coroutine, concurrently with the nemesis; some seeds inject none."""

    def __init__(self, world: World, *, is_enabled: bool | None) -> None:
        self.world = world
        # A separate random generator, so that the rest of a seed is the same with and without
        # exceptions.
        self.chance = random.Random(f"exceptions {world.seed}")
        by_seed = self.chance.random() < 0.5
        self.is_enabled = by_seed if is_enabled is None else is_enabled
        self.faults = Faults()
        self.faults.on_raise = self._raises
        self._left = self.chance.randint(1, 10)
        self._pace_ms = self.chance.choice((50, 200, 800))

    async def run(self) -> None:
        """Inject exceptions one at a time, each at a later call."""
        world, chance = self.world, self.chance
        while world.working and self._left:
            await world.sleep(chance.uniform(0.1, 2) * self._pace_ms)
            self._left -= 1
            ahead = chance.randint(1, chance.choice((3, 30, 300)))
            error = chance.choice(_KINDS)(f"injected {self._left}")
            self.faults.arm(self.faults.calls + ahead, chance.choice(list(When)), error)
            await world.sleep(chance.uniform(10, 1000))
            self.heal()
            if world.service.has_failed_disk:
                world.service.stop()

    def heal(self) -> None:
        """Cancel an exception that has not been raised yet."""
        self.faults.disarm()

    def _raises(self, name: str) -> None:
        self.world.trace(f"an exception {name}")
        self.world.count("exceptions")
        self.world.last_fault_ms = self.world.clock.monotonic_ms()

    @property
    def have_occurred(self) -> bool:
        """Whether any exception has been raised so far."""
        return bool(self.faults.raised)


def has_unexpected_error(answer: object) -> bool:
    """Return whether a response, or a part of it, contains UNKNOWN_SERVER_ERROR."""
    if isinstance(answer, list):
        return any(map(has_unexpected_error, answer))
    if getattr(answer, "error_code", None) == ErrorCode.UNKNOWN_SERVER_ERROR:
        return True
    names = type(answer).__slots__ if isinstance(answer, Struct) else ()
    return any(has_unexpected_error(getattr(answer, name, None)) for name in names)
