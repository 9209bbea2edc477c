"""The faults of a run, injected sequentially; the seed chooses each one and its time.

Every seed enables only some kinds of faults, so that rare combinations get runs of their own.
`heal` ends all faults; from then on the broker must serve again without help.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.helpers.sim.sim_files import Operation
    from tests.sim.host import Host

_DAY_MS = 86_400_000
_MAX_CLOCK_ERROR_MS = 4 * _DAY_MS
_WRITES = ("append", "sync", "sync_dir", "rename", "create", "truncate", "unlink")


class Nemesis:
    """Injects faults as a coroutine that runs concurrently with the clients.

    `kinds` are the names of the possible faults, by default all; one is injected about every
    `paces_ms` milliseconds.
    """

    def __init__(
        self,
        world: Host,
        *,
        kinds: Collection[str] | None = None,
        paces_ms: Sequence[int] = (50, 200, 800),
    ) -> None:
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
        if kinds is not None:
            faults = [fault for fault in faults if fault.__name__ in kinds]
        count = self.chance.randint(2, len(faults))
        self._faults = self.chance.sample(faults, count)
        self._pace_ms = self.chance.choice(paces_ms)

    async def run(self) -> None:
        """Inject one fault after another until the work is finished."""
        while self.world.working:
            await self.world.sleep(self.chance.uniform(0.1, 2) * self._pace_ms)
            fault = self.chance.choice(self._faults)
            if self.world.working:
                self.world.trace(f"nemesis: {fault.__name__}")
                self.world.count(f"fault {fault.__name__}")
                await fault()

    def heal(self) -> None:
        """End all faults and restart a broker that has lost a log directory."""
        world = self.world
        world.files.crash_at(None)
        world.files.fail_no_more()
        world.files.capacity_bytes = None
        world.set_speed(job_ms=5.0, network_ms=5.0)

    # -- the end of the process ---------------------------------------------------------------

    async def power_loss(self) -> None:
        """Stop the machine: unsynced data may be lost, torn or garbage."""
        self.world.service.end(power_loss=True)

    async def kill(self) -> None:
        """Kill the process: its writes are kept, the last one perhaps partially."""
        self.world.service.end(power_loss=False)

    async def crash_at_an_operation(self) -> None:
        """Lose power or kill the process in the middle of a later file operation."""
        world = self.world
        world.crash_is_power_loss = self.chance.random() < 0.7
        number = world.files.operations + self.chance.choice((1, 3, 10, 40, 100))
        world.files.crash_at(number - self.chance.randrange(number - world.files.operations))

    async def clean_stop(self) -> None:
        """Stop and restart the broker; sometimes it crashes while it stops."""
        self.world.service.stop()
        if self.chance.random() < 0.3:
            await self.crash_at_an_operation()

    # -- the disk -----------------------------------------------------------------------------

    async def disk_full(self) -> None:
        """Leave no free space for a while, sometimes starting before the broker starts."""
        if not self.world.history.acknowledged_count:
            return  # A broker whose disk is full from the beginning does nothing worth checking.
        files = self.world.files
        files.capacity_bytes = files.used_bytes + self.chance.choice((0, 10, 300, 3000))
        with self.world.trouble():
            await self.world.sleep(self.chance.uniform(10, 1000))
            if self.chance.random() < 0.3:
                self.world.service.end(power_loss=self.chance.random() < 0.5)
                await self.world.sleep(self.chance.uniform(10, 300))
            self.world.files.capacity_bytes = None

    async def scarce_room(self) -> None:
        """Leave room for only some of the writes for a while."""
        share = self.chance.choice((0.1, 0.5, 0.9))

        def applies(operation: Operation) -> bool:
            return operation.name == "append" and self.chance.random() < share

        with self.world.trouble():
            self.world.files.fail_when(applies, errno.ENOSPC)
            await self.world.sleep(self.chance.uniform(10, 500))
            self.world.files.fail_no_more()

    async def failed_sync(self) -> None:
        """Fail one sync; the disk drops the data that it could not write."""
        await self._fail_once(("sync", "sync_fs"))

    async def failed_operation(self) -> None:
        """Fail one operation of a random kind."""
        await self._fail_once((self.chance.choice(_WRITES),))

    async def failed_read(self) -> None:
        """Fail one read."""
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
        """Make jobs take long for a while."""
        with self.world.trouble():
            self.world.set_speed(job_ms=self.chance.choice((50, 500, 3000)))
            await self.world.sleep(self.chance.uniform(10, 3000))
            self.world.set_speed(job_ms=5.0)

    # -- everything else ----------------------------------------------------------------------

    async def slow_network(self) -> None:
        """Delay frames, so that frames of different connections overtake each other."""
        self.world.set_speed(network_ms=self.chance.choice((50, 300)))
        await self.world.sleep(self.chance.uniform(10, 1000))
        self.world.set_speed(network_ms=5.0)

    async def dropped_connections(self) -> None:
        """Drop some connections."""
        connections = self.world.network.connections
        count = self.chance.randint(1, max(1, len(connections)))
        for connection in self.chance.sample(connections, min(count, len(connections))):
            connection.drop()

    async def clock_jump(self) -> None:
        """Set the wall clock forward or back, by seconds or by a day."""
        by_ms = self.chance.choice((1_000, 60_000, 3_600_000, _DAY_MS)) * self.chance.choice(
            (-1, 1)
        )
        if abs(self._clock_error_ms + by_ms) <= _MAX_CLOCK_ERROR_MS:
            self._clock_error_ms += by_ms
            before_ms = self.world.clock.now_ms()
            self.world.clock.jump_wall(by_ms)
            self.world.history.clock_jumps.append((before_ms, self.world.clock.now_ms()))
