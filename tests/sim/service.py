"""Starts the broker, and restarts it whenever its process has ended, as a service manager does.

It also decides which files remain: a clean stop and a kill leave all writes, a power loss only what
was synced.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.sim.host import Host
    from tests.sim.process import Process

_MAX_LOADS = 1_000_000


class Service:
    """The consecutive lives of the broker, numbered from 1."""

    def __init__(self, world: Host) -> None:
        self.life_number = 0
        self.process: Process | None = None
        self._world = world
        self._chance = random.Random(world.chance.random())
        self._life_began_ms = 0.0
        self._has_served = False
        self._everything_is_durable = False
        """The last stop was clean, and nothing has been written since."""

    @property
    def coordinator_life(self) -> int:
        """The number of the coordinators' current life; their state may be lost at its end."""
        loads = 0 if self.process is None else self.process.reloads
        return self.life_number * _MAX_LOADS + loads

    def coordinator_reloads(self) -> None:
        """Disconnect all clients: members saw records that a slow disk did not write."""
        for connection in list(self._world.network.connections):
            connection.close_by_server()

    @property
    def is_serving(self) -> bool:
        """Whether clients can connect."""
        return self.process is not None and self.process.is_serving

    @property
    def is_idle(self) -> bool:
        """Whether the broker is serving and no jobs are pending."""
        return self.process is not None and self.is_serving and self.process.jobs.is_idle

    @property
    def has_met_faults(self) -> bool:
        """Whether the disk has had faults in this life."""
        return self._world.last_fault_ms >= self._life_began_ms

    @property
    def has_failed_disk(self) -> bool:
        """Whether a log directory is offline, which only a restart repairs."""
        process = self.process
        if process is None or not process.is_serving:
            return False
        return bool(process.broker.log_manager.offline_dirs)

    def disk_lost(self) -> None:
        """Note that the broker may have no data: it cannot start while its new disk is full."""
        self._has_served = False

    def start(self) -> None:
        """Begin the next life, unless one is in progress."""
        if self.process is not None:
            return
        self.life_number += 1
        self._everything_is_durable = False
        if self.has_met_faults:
            # As after a failed sync, which drops the data that it could not write.
            self._world.unsynced_is_lost()
        self._life_began_ms = self._world.clock.monotonic_ms()
        self._world.life_begins()
        self.process = self._world.make_process(self.life_number)
        self.process.start()

    def started(self, process: Process) -> None:
        """Record that the broker is serving."""
        self._world.trace("broker serves")
        self._has_served = True
        self._world.network.server = process

    def failed(self, process: Process, error: Exception) -> None:
        """Handle a failed start or stop; after a disk fault the broker may retry.

        A full disk is not such a fault, except for a broker that has no data yet.
        """
        if process is not self.process:
            return
        is_fault = self.has_met_faults or self._world.explains(error)
        if not is_fault or (self._has_served and "No space left" in str(error)):
            self._world.fail(process.crash(error))
        self._world.trace(f"broker gives up: {error!r}")
        self.end(power_loss=False)

    def stop(self) -> None:
        """Ask the broker to stop; the next life begins after the stop."""
        if self.process is not None and self.process.is_serving:
            self._world.network.server_stops()
            self.process.stop()

    def stopped(self, process: Process) -> None:
        """Record that the broker has stopped cleanly."""
        if process is self.process:
            self._world.trace("broker stopped")
            self.end(power_loss=False)
            self._everything_is_durable = True

    def end(self, *, power_loss: bool, inside_append: bool = False) -> None:
        """End the running process, if any, perhaps in the middle of an append.

        A new process starts soon. A power loss is possible without a process, too.
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
            world.compaction_faults.process_ended()
        if process is not None:
            process.end()
            self.process = None
            world.network.server_died()
            world.timers.call_later(self._chance.uniform(1, world.max_down_ms), self.start)
