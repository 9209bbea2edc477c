"""Starts the broker, and starts it again whenever its process has ended, as a service manager does.

It also decides what the end of a process means for the disk: a clean stop and a kill leave what was
written, a power loss only what was synced.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tests.sim.process import Process

if TYPE_CHECKING:
    from tests.sim.world import World

_MAX_DOWN_MS = 200.0
_MAX_LOADS = 1_000_000


class Service:
    """The broker's lives, one after the other. A life begins with 1."""

    def __init__(self, world: World) -> None:
        self.life_number = 0
        self.process: Process | None = None
        self._world = world
        self._chance = random.Random(world.chance.random())
        self._life_began_ms = 0.0
        self._has_served = False
        self._everything_is_durable = False
        """The last stop was a clean one, and nothing has been written since."""

    @property
    def coordinator_life(self) -> int:
        """The number of the life of the coordinators: one ends when what it knew may be lost."""
        loads = 0 if self.process is None else self.process.loads_anew
        return self.life_number * _MAX_LOADS + loads

    def coordinator_loads_anew(self) -> None:
        """What a slow disk did not take was told to members: for them it is as a crash."""
        for connection in list(self._world.network.connections):
            connection.close_by_server()

    @property
    def is_serving(self) -> bool:
        """Whether clients can connect."""
        return self.process is not None and self.process.is_serving

    @property
    def is_idle(self) -> bool:
        """Whether the broker serves and has no job to wait for."""
        return self.process is not None and self.is_serving and self.process.jobs.is_idle

    @property
    def has_met_faults(self) -> bool:
        """Whether the disk has been in trouble in this life."""
        return self._world.last_fault_ms >= self._life_began_ms

    @property
    def has_failed_disk(self) -> bool:
        """Whether a log directory is offline, which only a restart mends."""
        process = self.process
        if process is None or not process.is_serving:
            return False
        return bool(process.broker.log_manager.offline_dirs)

    def start(self) -> None:
        """Begin the next life, unless one is under way."""
        if self.process is not None:
            return
        self.life_number += 1
        self._everything_is_durable = False
        if self.has_met_faults:
            self._world.unsynced_is_lost()  # As by a failed sync, which drops what it cannot write.
        self._life_began_ms = self._world.clock.monotonic_ms()
        self._world.life_begins()
        self.process = Process(self._world, self.life_number)
        self.process.start()

    def started(self, process: Process) -> None:
        """The broker serves."""
        self._world.trace("broker serves")
        self._has_served = True
        self._world.network.server = process

    def failed(self, process: Process, error: Exception) -> None:
        """The broker could not start or stop; with a disk in trouble it may try again.

        A full disk is no such trouble, but for a broker that has nothing yet.
        """
        if process is not self.process:
            return
        if not self.has_met_faults or (self._has_served and "No space left" in str(error)):
            self._world.fail(process.crash(error))
        self._world.trace(f"broker gives up: {error!r}")
        self.end(power_loss=False)

    def stop(self) -> None:
        """Ask the broker to stop; the next life begins when it has."""
        if self.process is not None and self.process.is_serving:
            self._world.network.server_stops()
            self.process.stop()

    def stopped(self, process: Process) -> None:
        """The broker has stopped cleanly."""
        if process is self.process:
            self._world.trace("broker stopped")
            self.end(power_loss=False)
            self._everything_is_durable = True

    def end(self, *, power_loss: bool, inside_append: bool = False) -> None:
        """The process, if there is one, ends now, perhaps with an append half done.

        A new one starts soon. The power may be lost without a process, too.
        """
        process, world = self.process, self._world
        if process is None and not power_loss:
            return
        world.trace("power loss" if power_loss else "the process ends")
        world.count("file operations", world.files.operations)
        if power_loss:
            world.files = world.files.crash(self._chance)
            if not self._everything_is_durable:
                world.unsynced_is_lost()
        else:
            world.files = world.files.kill(self._chance if inside_append else None)
        if process is not None:
            process.timers.end()
            process.is_serving = False
            self.process = None
            world.network.server_died()
            world.timers.call_later(self._chance.uniform(1, _MAX_DOWN_MS), self.start)
