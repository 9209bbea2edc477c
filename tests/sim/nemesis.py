"""What goes wrong in a run: one fault after the other, each chosen and timed by the seed.

Every seed enables only some kinds of fault, so that rare combinations get runs of their own. `heal`
ends all of them; from then on the broker has to serve again by itself.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.helpers.sim_files import Operation
    from tests.sim.world import World

_DAY_MS = 86_400_000
_MAX_CLOCK_ERROR_MS = 4 * _DAY_MS
_WRITES = ("append", "sync", "sync_dir", "rename", "create", "truncate", "unlink")


class Nemesis:
    """Runs as a coroutine beside the clients."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.chance = random.Random(world.chance.random())
        self._clock_error_ms = 0
        faults: list[Callable[[], Awaitable[None]]] = [
            self.power_loss,
            self.kill,
            self.crash_at_an_operation,
            self.clean_stop,
            self.disk_full,
            self.scarce_room,
            self.failed_sync,
            self.failed_operation,
            self.failed_read,
            self.slow_disk,
            self.slow_network,
            self.dropped_connections,
            self.clock_jump,
        ]
        count = self.chance.randint(2, len(faults))
        self._faults = self.chance.sample(faults, count)
        self._pace_ms = self.chance.choice((50, 200, 800))

    async def run(self) -> None:
        """One fault after the other until the work is over."""
        while self.world.working:
            await self.world.sleep(self.chance.uniform(0.1, 2) * self._pace_ms)
            fault = self.chance.choice(self._faults)
            if self.world.working:
                self.world.trace(f"nemesis: {fault.__name__}")
                self.world.count(f"fault {fault.__name__}")
                await fault()

    def heal(self) -> None:
        """No fault is under way any more; a broker that has lost a disk is started anew."""
        world = self.world
        world.files.crash_at(None)
        world.files.fail_no_more()
        world.files.capacity_bytes = None
        world.set_speed(job_ms=5.0, network_ms=5.0)

    # -- the end of the process ---------------------------------------------------------------

    async def power_loss(self) -> None:
        """The machine stops: what was not synced may be lost, torn or garbage."""
        self.world.service.end(power_loss=True)

    async def kill(self) -> None:
        """The process stops: what it wrote is there, the last write perhaps in part."""
        self.world.service.end(power_loss=False)

    async def crash_at_an_operation(self) -> None:
        """As one of the two, but in the middle of something: at a file operation to come."""
        world = self.world
        world.crash_is_power_loss = self.chance.random() < 0.7
        number = world.files.operations + self.chance.choice((1, 3, 10, 40, 100))
        world.files.crash_at(number - self.chance.randrange(number - world.files.operations))

    async def clean_stop(self) -> None:
        """Stop and start again; at times the crash comes while it stops."""
        self.world.service.stop()
        if self.chance.random() < 0.3:
            await self.crash_at_an_operation()

    # -- the disk -----------------------------------------------------------------------------

    async def disk_full(self) -> None:
        """There is no room for a while, at times from before a start on."""
        if not self.world.history.acknowledged_count:
            return  # With a disk that is full from the first there is nothing to see.
        files = self.world.files
        files.capacity_bytes = files.used_bytes + self.chance.choice((0, 10, 300, 3000))
        with self.world.trouble():
            await self.world.sleep(self.chance.uniform(10, 1000))
            if self.chance.random() < 0.3:
                self.world.service.end(power_loss=self.chance.random() < 0.5)
                await self.world.sleep(self.chance.uniform(10, 300))
            self.world.files.capacity_bytes = None

    async def scarce_room(self) -> None:
        """For a while there is room for some of what is written, and none for the rest."""
        share = self.chance.choice((0.1, 0.5, 0.9))

        def applies(operation: Operation) -> bool:
            return operation.name == "append" and self.chance.random() < share

        with self.world.trouble():
            self.world.files.fail_when(applies, errno.ENOSPC)
            await self.world.sleep(self.chance.uniform(10, 500))
            self.world.files.fail_no_more()

    async def failed_sync(self) -> None:
        """One sync fails; the disk drops what it could not write."""
        await self._fail_once(("sync", "sync_fs"))

    async def failed_operation(self) -> None:
        """One operation of some kind fails."""
        await self._fail_once((self.chance.choice(_WRITES),))

    async def failed_read(self) -> None:
        """One read fails."""
        await self._fail_once(("pread", "read", "open", "listdir"))

    async def _fail_once(self, kinds: tuple[str, ...]) -> None:
        left = self.chance.choice((0, 1, 5, 20))

        def applies(operation: Operation) -> bool:
            nonlocal left
            if operation.name in kinds:
                left -= 1
                return left == -1
            return False

        with self.world.trouble():
            self.world.files.fail_when(applies, errno.EIO)
            await self.world.sleep(self.chance.uniform(10, 500))
            self.world.files.fail_no_more()
            if self.world.service.has_failed_disk:
                self.world.service.stop()

    async def slow_disk(self) -> None:
        """Jobs take long."""
        with self.world.trouble():
            self.world.set_speed(job_ms=self.chance.choice((50, 500, 3000)))
            await self.world.sleep(self.chance.uniform(10, 3000))
            self.world.set_speed(job_ms=5.0)

    # -- everything else ----------------------------------------------------------------------

    async def slow_network(self) -> None:
        """Frames travel long, so that those of different connections overtake each other."""
        self.world.set_speed(network_ms=self.chance.choice((50, 300)))
        await self.world.sleep(self.chance.uniform(10, 1000))
        self.world.set_speed(network_ms=5.0)

    async def dropped_connections(self) -> None:
        """Some connections break."""
        connections = self.world.network.connections
        count = self.chance.randint(1, max(1, len(connections)))
        for connection in self.chance.sample(connections, min(count, len(connections))):
            connection.drop()

    async def clock_jump(self) -> None:
        """The wall clock is set, by seconds or by a day, forward or back."""
        by_ms = self.chance.choice((1_000, 60_000, 3_600_000, _DAY_MS)) * self.chance.choice(
            (-1, 1)
        )
        if abs(self._clock_error_ms + by_ms) <= _MAX_CLOCK_ERROR_MS:
            self._clock_error_ms += by_ms
            self.world.clock.jump_wall(by_ms)
