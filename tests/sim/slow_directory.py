"""A directory whose writes are slow at times, in addition to all other faults.

A synchronous write of the reactor takes virtual time there, during which nothing else happens; a
write in a job only delays that directory's lane. So a seed exercises both directions: a broker that
detects the slow disk and writes by jobs (daemon/plogd/log/disk/slow_disk_writes.py), with every
other fault in between, and one that detects a fast disk and returns to synchronous writes.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.sim.process import Process
    from tests.sim.world import World


class SlowDirectory:
    """Runs as a coroutine, concurrently with the nemesis; some seeds have no slow directory."""

    def __init__(self, world: World) -> None:
        self.world = world
        # A separate random generator, so that the rest of a seed is the same with and without slow
        # writes.
        self.chance = random.Random(f"slow {world.seed}")
        self.is_enabled = self.chance.random() < 0.5
        self._pace_ms = self.chance.choice((50, 400, 1500))
        self._quiet_ms = self.chance.choice((20.0, 200.0, 2_000.0, 30_000.0))
        self._path = ""
        self._write_ms = 0.0

    async def run(self) -> None:
        """Alternate between slow and fast until the work is finished."""
        while self.world.working:
            await self.world.sleep(self.chance.uniform(0.1, 2) * self._pace_ms)
            if self.world.working:
                self.world.trace("a directory becomes slow")
                self.world.count("fault slow_directory")
                self._path = self.chance.choice(self.world.config.log_dirs)
                self._write_ms = self.chance.choice((15.0, 21.0, 100.0, 700.0))
                self._apply(self.world.service.process)
                await self.world.sleep(self.chance.uniform(10, 2_000))
                self.heal()

    def heal(self) -> None:
        """Make every directory fast."""
        self._path, self._write_ms = "", 0.0
        self._apply(self.world.service.process)

    def apply_to(self, process: Process) -> None:
        """Apply the slow directory to a new process."""
        for path in self.world.config.log_dirs:
            process.broker.log_manager.dirs.writes_of(path).quiet_ms = self._quiet_ms
        self._apply(process)

    def _apply(self, process: Process | None) -> None:
        if process is not None:
            lanes = {f"dir:{self._path}": self._write_ms} if self._path else {}
            process.jobs.lane_ms = lanes

    def write_ms(self, path: str) -> float:
        """Return how long a write of the reactor to `path` takes."""
        process = self.world.service.process
        if not self._path or not path.startswith(f"{self._path}/"):
            return 0.0
        return 0.0 if process is None or process.jobs.is_running else self._write_ms
